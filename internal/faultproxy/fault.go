package faultproxy

import (
	"bytes"
	"time"
)

// Kind is a way in which a connection fails.
type Kind uint8

// The kinds.
const (
	None Kind = iota
	// CutBefore resets the connection before the server has got what the client sent.
	CutBefore
	// CutAfter resets the connection when the answer is there, which is lost: the server has got
	// all that the client sent.
	CutAfter
	// Delay lets what the client sends arrive later.
	Delay
	// Freeze holds back what both sides send. It is accepted, and goes on when the fault has ended.
	Freeze
	// LoseRequests loses what the client sends, and leaves the connection open until the fault has
	// ended, when it is reset.
	LoseRequests
	// LoseAnswers is LoseRequests for what the server sends.
	LoseAnswers
	// Drip lets what both sides send arrive byte by byte.
	Drip
	// Refuse resets new connections, and leaves those that are open alone.
	Refuse
)

var kindNames = [...]string{"none", "cut before", "cut after", "delay", "freeze", "lose requests",
	"lose answers", "drip", "refuse"}

// String returns the name of the kind, such as "cut before".
func (k Kind) String() string { return kindNames[k] }

// A Fault is what befalls connections through a Proxy. The zero Fault is none.
type Fault struct {
	Kind Kind
	// Pause is how much later what Delay delays arrives, and how far apart the bytes are that Drip
	// drips.
	Pause time.Duration
	// Holding limits the fault to what a client sends that holds these bytes, such as "evalsha",
	// and to what becomes of the connection then. Empty means whatever is sent. Refuse does not
	// look.
	Holding string
	// Times is after how often the fault has ended by itself, for what comes later; 0 is never.
	Times int
	// Old spares connections that are made after the fault has begun.
	Old bool
}

type direction uint8

const (
	up   direction = iota // from the client to the server
	down                  // back
)

// befalls tells whether f befalls what is sent in that direction. tail is what was sent just
// before.
func (f *Fault) befalls(way direction, tail, sent []byte) bool {
	switch f.Kind {
	case None, Refuse:
		return false
	case CutBefore, CutAfter, Delay, LoseRequests:
		if way == down {
			return false
		}
	case LoseAnswers:
		if f.Holding == "" {
			return way == down
		}
	}
	if f.Holding == "" {
		return true
	}
	if way == down {
		return false
	}
	tail = tail[max(0, len(tail)-len(f.Holding)+1):]
	return bytes.Contains(append(bytes.Clone(tail), sent...), []byte(f.Holding))
}
