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
	// CutBefore resets the connection instead of forwarding what the client sends.
	CutBefore
	// CutAfter forwards what the client sends and resets the connection when the answer arrives,
	// which is lost.
	CutAfter
	// Delay delays what the client sends.
	Delay
	// Freeze accepts what both sides send and forwards it when the fault ends.
	Freeze
	// LoseRequests drops what the client sends. The connection stays open until the fault ends, and
	// is then reset.
	LoseRequests
	// LoseAnswers is LoseRequests for what the server sends.
	LoseAnswers
	// Drip forwards what both sides send byte by byte.
	Drip
	// Refuse resets new connections and does not affect open ones.
	Refuse
)

var kindNames = [...]string{"none", "cut before", "cut after", "delay", "freeze", "lose requests",
	"lose answers", "drip", "refuse"}

// String returns the name of the kind, such as "cut before".
func (k Kind) String() string { return kindNames[k] }

// A Fault describes what happens to the connections of a Proxy. The zero Fault is none.
type Fault struct {
	Kind Kind
	// Pause is the delay of Delay, and the time between the bytes of Drip.
	Pause time.Duration
	// Holding limits the fault to data from clients that contains these bytes, such as "evalsha",
	// and to its consequences. Empty means all data. Refuse ignores it.
	Holding string
	// Times is the number of times after which the fault ends; 0 means never.
	Times int
	// Old excludes connections that are opened after the fault has begun.
	Old bool
}

type direction uint8

const (
	up   direction = iota // from the client to the server
	down                  // from the server to the client
)

// applies reports whether f applies to data in that direction. tail is the data before it.
func (f *Fault) applies(way direction, tail, sent []byte) bool {
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
