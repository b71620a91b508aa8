package pipelined

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// trackingPause is how long a Fallback sends nothing with tracking after a server has refused it.
const trackingPause = time.Second

// errNotTracked is the error of a tracked command while tracking is refused. Nothing was sent.
var errNotTracked = errors.New("the server does not track keys for this user")

// A Fallback is a [Client] whose connections track what they read. While a server does not permit
// that, it sends commands through another client, which does not track.
type Fallback struct {
	Client
	open    func() (Client, error)
	started time.Time
	paused  atomic.Int64 // when to track again, as a time since started; 0 means now

	mu     sync.Mutex
	plain  Client // of open, or nil
	closed bool
}

// NewFallback returns a Fallback from client. open returns a client that does not track.
func NewFallback(client Client, open func() (Client, error)) *Fallback {
	return &Fallback{Client: client, open: open, started: time.Now()}
}

// tracks reports whether a command may be sent with tracking: one at the end of each pause, and all
// after that has been accepted.
func (f *Fallback) tracks() bool {
	paused := f.paused.Load()
	if paused == 0 {
		return true
	}
	now := int64(time.Since(f.started))
	return now >= paused && f.paused.CompareAndSwap(paused, now+int64(trackingPause))
}

// refused notes the outcome of a command with tracking, and reports whether it was refused.
func (f *Fallback) refused(err error) bool {
	switch {
	case f.Untracked(err):
		f.paused.Store(int64(time.Since(f.started) + trackingPause))
		return true
	case f.paused.Load() != 0:
		f.paused.Store(0)
	}
	return false
}

// Do implements [Client].
func (f *Fallback) Do(ctx context.Context, words, keys, args []string) (string, error) {
	refusal := errNotTracked
	if f.tracks() {
		reply, err := f.Client.Do(ctx, words, keys, args)
		if !f.refused(err) {
			return reply, err
		}
		refusal = err
	}
	plain, ok := f.untracked()
	if !ok {
		return "", refusal
	}
	return plain.Do(ctx, words, keys, args)
}

// DoTracked implements [Client]. While tracking is refused it sends nothing.
func (f *Fallback) DoTracked(ctx context.Context, words, keys, args []string) (string, error) {
	if !f.tracks() {
		return "", errNotTracked
	}
	reply, err := f.Client.DoTracked(ctx, words, keys, args)
	f.refused(err)
	return reply, err
}

// Nodes implements [Client].
func (f *Fallback) Nodes() []Client {
	if f.paused.Load() != 0 {
		if plain, ok := f.untracked(); ok {
			return plain.Nodes()
		}
	}
	return f.Client.Nodes()
}

// NotSent implements [Client].
func (f *Fallback) NotSent(err error) bool {
	return errors.Is(err, errNotTracked) || f.Client.NotSent(err)
}

// untracked returns the client that does not track. ok is false if there is no connection.
func (f *Fallback) untracked() (c Client, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.plain == nil && !f.closed {
		if c, err := f.open(); err == nil {
			f.plain = c
		}
	}
	return f.plain, f.plain != nil
}

// Close closes both clients.
func (f *Fallback) Close() {
	f.Client.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.plain != nil {
		f.plain.Close()
	}
}
