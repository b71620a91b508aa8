package envoy

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/truewindow/ratelimit/cmd/ratelimit/conns"
)

const (
	// messageTime is how long a client may take to send a message.
	messageTime = 9 * time.Second
	// callBytes and frameBytes are what a call that waits for its message, and a frame of data,
	// need beside the bytes that a client sends.
	callBytes, frameBytes = 8 << 10, 64

	// Until its end a call holds answerBytes, and for an answer answerShare as much as the message,
	// up to maxAnswer. One that may have more messages holds as many answers as the library keeps
	// for a client that does not read them.
	answerBytes, answerShare, maxAnswer, maxAnswers = 1 << 10, 3, 12 << 10, 64 << 10
)

// counting are credentials that count what the calls of a connection hold.
type counting struct {
	credentials.TransportCredentials
}

func (c counting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return newFramed(conn, conns.Of(raw)), info, nil
}

func (c counting) Clone() credentials.TransportCredentials {
	return counting{c.TransportCredentials.Clone()}
}

// framed is a connection of HTTP/2 (RFC 9113), of which it reads the heads of frames. The library
// keeps what has come of a message until all of it has, and bounds that only for each stream.
type framed struct {
	net.Conn
	own     *conns.Conn
	in, out scanner

	mu      sync.Mutex
	streams map[uint32]*stream
	coming  int         // streams whose message has not arrived in full
	late    *time.Timer // runs while there are some
	closed  bool
}

// A stream is a call.
type stream struct {
	part    *conns.Part
	began   time.Time // of the message; zero if it has arrived
	waiting bool      // for a message, and callBytes are counted
	bytes   int64     // of messages that it has not read
	answers int64     // and what is held for answers, until the end
}

func newFramed(conn net.Conn, own *conns.Conn) *framed {
	return &framed{Conn: conn, own: own, in: scanner{skip: len(preface)},
		streams: make(map[uint32]*stream)}
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Kinds and flags of frames.
const (
	frameData, frameHeaders, frameReset, frameContinuation = 0, 1, 3, 9
	endOfStream                                            = 1
)

func (c *framed) Read(b []byte) (int, error) {
	c.own.Wait()
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.scan(b[:n], c.received)
	if c.late == nil && c.coming > 0 && !c.closed {
		c.late = time.AfterFunc(messageTime, c.expire)
	}
	return n, err
}

func (c *framed) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.scan(b[:n], c.sent)
	return n, err
}

func (c *framed) received(f frame) {
	if !c.in.begun {
		c.in.begun = true
		c.own.Counted()
	}
	s := c.streams[f.stream]
	switch {
	case f.kind == frameReset:
		c.end(f.stream)
		return
	case s == nil && f.kind == frameHeaders && !c.closed:
		s = &stream{part: c.own.Begin(), waiting: true}
		c.streams[f.stream] = s
		c.own.Busy()
		s.add(callBytes)
	case s == nil, f.kind != frameData && f.kind != frameHeaders && f.kind != frameContinuation:
		return
	}
	if s.began.IsZero() {
		s.began = time.Now()
		c.coming++
	}
	s.add(int64(f.length) + frameBytes)
	if f.kind != frameContinuation && f.flags&endOfStream != 0 {
		c.arrive(s)
		s.part.Arrive()
		s.answer(answerBytes + min(answerShare*s.bytes, maxAnswer))
	}
}

func (c *framed) sent(f frame) {
	s := c.streams[f.stream]
	switch {
	case s == nil:
	case f.kind == frameReset, f.kind == frameHeaders && f.flags&endOfStream != 0:
		c.end(f.stream)
	case f.kind == frameHeaders: // it has read the message
		c.arrive(s)
		s.add(-s.bytes)
		s.answer(maxAnswers)
		s.part.Answer()
	case f.kind == frameData && f.length > 0: // the client reads, as that of a Watch does for hours
		s.add(-s.bytes)
		s.part.Add(-s.answers)
		s.answers = 0
	}
}

func (s *stream) add(bytes int64) {
	s.bytes += bytes
	s.part.Add(bytes)
}

// answer holds bytes for answers, if it holds none yet. A client may leave them unread.
func (s *stream) answer(bytes int64) {
	if s.answers == 0 {
		s.answers = bytes
		s.part.Add(bytes)
	}
}

// arrive says that a message has arrived.
func (c *framed) arrive(s *stream) {
	if !s.began.IsZero() {
		s.began = time.Time{}
		c.coming--
	}
	if s.waiting {
		s.waiting = false
		s.add(-callBytes)
	}
}

func (c *framed) end(id uint32) {
	if s := c.streams[id]; s != nil {
		c.arrive(s)
		s.part.End()
		delete(c.streams, id)
	}
}

// oldest returns when the oldest message that has not arrived began, or zero.
func (c *framed) oldest() (began time.Time) {
	for _, s := range c.streams {
		if !s.began.IsZero() && (began.IsZero() || s.began.Before(began)) {
			began = s.began
		}
	}
	return began
}

// expire closes the connection if a message takes too long.
func (c *framed) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = nil
	oldest := c.oldest()
	switch left := messageTime - time.Since(oldest); {
	case oldest.IsZero() || c.closed:
	case left <= 0:
		c.own.Cut()
	default:
		c.late = time.AfterFunc(left, c.expire)
	}
}

func (c *framed) Close() error {
	c.mu.Lock()
	c.closed = true
	for id := range c.streams {
		c.end(id)
	}
	if c.late != nil {
		c.late.Stop()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// A frame is the head of one.
type frame struct {
	length      int
	kind, flags byte
	stream      uint32
}

// A scanner finds the frames in what one side sends.
type scanner struct {
	skip  int // bytes that belong to no head
	head  [9]byte
	have  int // bytes of head
	begun bool
}

func (s *scanner) scan(b []byte, found func(frame)) {
	for {
		n := min(s.skip, len(b))
		s.skip, b = s.skip-n, b[n:]
		if len(b) == 0 {
			return
		}
		n = copy(s.head[s.have:], b)
		s.have, b = s.have+n, b[n:]
		if s.have < len(s.head) {
			return
		}
		s.have = 0
		h := &s.head
		f := frame{length: int(h[0])<<16 | int(h[1])<<8 | int(h[2]), kind: h[3], flags: h[4],
			stream: uint32(h[5]&0x7f)<<24 | uint32(h[6])<<16 | uint32(h[7])<<8 | uint32(h[8])}
		s.skip = f.length
		found(f)
	}
}
