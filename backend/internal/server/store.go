package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

const (
	defaultPrefix  = "rl:"
	defaultTimeout = 100 * time.Millisecond
)

// A Client is a client library, as far as stores need it. Its methods are called by many goroutines.
type Client interface {
	// Run sends the command verb, "evalsha" or "eval", for script, to the server that has keys, and returns the reply. It opens gate before the
	// first byte may be on its way, and does not send where the gate says no. It never sends the command again once it may have been
	// received, and does not keep keys and args.
	Run(ctx context.Context, gate *Gate, verb, script string, keys, args []string) (reply string, err error)

	// Infos returns what INFO says on the server, or on the servers of a cluster.
	Infos(ctx context.Context) ([]string, error)

	// ErrorReply returns the server's words if err is an error reply of a server.
	ErrorReply(err error) (text string, ok bool)

	// Unsent tells that Run failed with err for want of a connection, so that only an attempt before, one that a server
	// redirected, has been sent.
	Unsent(err error) bool

	// Lost is called after an error that was no reply of a server. It does not wait.
	Lost(err error)

	// Cluster tells that keys are on several servers, by their slots.
	Cluster() bool
}

// Words are how a store's package speaks of itself and its client in errors.
type Words struct {
	Package  string // that begins an error
	Single   string // the client that a single server wants
	Cluster  string // the client that a cluster wants
	Sentinel string // the client that a Sentinel wants

	Invalid error // what an error of New wraps
}

// Options are what the stores' packages document as theirs.
type Options struct {
	Prefix  string
	Tag     func(key string) string
	Timeout time.Duration
	Now     func() int64
	Alone   bool // each demand, and each TakeAll, in a call of its own
}

// A Store is what a store on servers is behind its package's own type.
type Store struct {
	client  Client
	words   Words
	keys    Keyspace
	timeout time.Duration
	now     func() int64
	policy  ratelimit.Policy
	cluster bool
	deny    *DenyCache // or nil
	bare    string     // why there is none, where one was wanted
	closed  atomic.Bool

	alone   bool
	calls   Calls     // if alone
	lanes   lanes     // else
	scratch sync.Pool // of *call
}

// New returns a store on client's servers, or an error that says which option is wrong.
func New(client Client, words Words, policy ratelimit.Policy, opts Options) (*Store, error) {
	keys, err := opts.check(words, policy)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: client, words: words, keys: keys, timeout: opts.Timeout, now: opts.Now, policy: policy, cluster: client.Cluster(), alone: opts.Alone,
	}
	if s.timeout == 0 {
		s.timeout = defaultTimeout
	}
	s.scratch.New = func() any { return &call{store: s} }
	s.openLanes()
	return s, nil
}

// Check returns an error that says which option is wrong.
func (o Options) Check(w Words, policy ratelimit.Policy) error {
	_, err := o.check(w, policy)
	return err
}

func (o Options) check(w Words, policy ratelimit.Policy) (Keyspace, error) {
	if !policy.Valid() {
		return Keyspace{}, fmt.Errorf("%w: the policy is none of FailClosed, FailOpen and FailLocal", w.Invalid)
	}
	if o.Timeout < 0 {
		return Keyspace{}, fmt.Errorf("%w: Timeout %v is negative", w.Invalid, o.Timeout)
	}
	prefix := o.Prefix
	if prefix == "" {
		prefix = defaultPrefix
	}
	keys, err := NewKeyspace(prefix, o.Tag)
	if err != nil {
		return Keyspace{}, fmt.Errorf("%w: Prefix: %w", w.Invalid, err)
	}
	return keys, nil
}

// Take is that of [ratelimit.Store].
func (s *Store) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if err := ratelimit.CheckTake(ctx, d); err != nil {
		return s.policy.Undecided(d, err), err
	}
	if res, ok := s.deny.Lookup(d); ok {
		return res, nil
	}
	if s.closed.Load() {
		err := s.errClosed()
		return s.policy.Undecided(d, err), err
	}
	ds, out := [1]ratelimit.Demand{d}, [1]ratelimit.Result{}
	ds[0].Policy = 0 // so that demands that differ in it only are equal
	if err := s.decide(ctx, ds[:], out[:]); err != nil {
		return s.policy.Undecided(d, err), err
	}
	return out[0], nil
}

// TakeAll is that of [ratelimit.Store].
func (s *Store) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	err := ratelimit.CheckTakeAll(ctx, ds, out)
	if err == nil && s.closed.Load() {
		err = s.errClosed()
	}
	if err == nil {
		err = s.decideAll(ctx, ds, out)
	}
	if err != nil {
		s.policy.UndecidedAll(ds, out, err)
	}
	return err
}

// Close lets nothing more be decided.
func (s *Store) Close() {
	s.closed.Store(true)
	s.deny.Close()
}

func (s *Store) errClosed() error {
	return fmt.Errorf("%w (%s)", ratelimit.ErrClosed, s.words.Package)
}

func (s *Store) decide(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if !s.alone {
		return s.travel(ctx, ds, out)
	}
	c := s.scratch.Get().(*call)
	if err := c.prepare(ds); err != nil {
		s.scratch.Put(c)
		return err
	}
	left, err := s.calls.Do(ctx, s.timeout, &c.gate, c.run)
	if left { // the client still has c
		s.client.Lost(err)
		return err
	}
	if err != nil {
		err = s.failure(err, c.gate.Opened())
	} else {
		err = c.script.Results(c.reply, 0, out)
	}
	s.scratch.Put(c)
	return err
}

// failure returns the error for a demand that the client could not get decided. sent tells that it may have been written to
// a connection.
func (s *Store) failure(err error, sent bool) error {
	cause := s.keys.Scrub(err)
	if text, ok := s.client.ErrorReply(err); ok {
		kind := ratelimit.ErrUnavailable // a connection that was refused, such as by NOAUTH
		if sent {
			kind = ReplyKind(text)
		}
		if errors.Is(kind, errors.ErrUnsupported) {
			return fmt.Errorf("%s: keys of several slots in one TakeAll: %w: %w", s.words.Package, kind, cause)
		}
		return fmt.Errorf("%w: %w", kind, cause)
	}
	s.client.Lost(err)
	if sent && !s.client.Unsent(err) {
		return fmt.Errorf("%w: %w", ratelimit.ErrOutcomeUnknown, cause)
	}
	return fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, cause)
}
