package server

import (
	"context"
	"fmt"

	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/driver"
)

// A Client is what stores need of a client library. Its methods are safe for concurrent use.
type Client interface {
	// Run sends c to the server that has its keys, and sets its Reply or Err. It calls Gate.Open
	// before the first byte may be sent, and sends nothing if that returns false. It never sends c
	// again once it may have been received, and does not keep its keys and args.
	Run(ctx context.Context, c *Command)

	// RunAll is Run for several commands, all at once. It sets Redirected as well.
	RunAll(ctx context.Context, cs []*Command)

	// Infos returns the replies to INFO of the server, or of the servers of a cluster.
	Infos(ctx context.Context) ([]string, error)

	// ErrorReply returns the text if err is an error reply of a server.
	ErrorReply(err error) (text string, ok bool)

	// Unsent reports whether Run failed with err because it had no connection. Then nothing was
	// sent, except perhaps an earlier attempt that a server redirected.
	Unsent(err error) bool

	// Lost is called after an error that was not a reply of a server. It does not block.
	Lost(err error)

	// Cluster reports whether keys are on several servers, by their slots.
	Cluster() bool
}

// A Router is a [Client] of a cluster that reports which server has a key.
type Router interface {
	// Owner returns the name of the server that has key, or "" if the client would need I/O to find
	// it.
	Owner(key string) string
}

// A Tracker is a [Client] whose server reports changes of what it has read.
type Tracker interface {
	// RunTracked is [Client].Run for a script that only reads, and has the server report changes of
	// what it has read. It fails unless the server does so.
	RunTracked(ctx context.Context, c *Command)
}

// A Command is EVALSHA or EVAL, which run a script, or their read-only form.
type Command struct {
	Gate   *gate.Gate
	Verb   string // "evalsha" or "eval", or with "_ro"
	Script string // the SHA-1 or the source
	Keys   []string
	Args   []string

	Reply      string
	Err        error
	Redirected bool // a server has replied that the slot is on another one, or moves there
}

// Words are the names that the errors of a store's package use.
type Words struct {
	Package  string // which begins an error
	Single   string // the client for a single server
	Cluster  string // the client for a cluster
	Sentinel string // the client for a Sentinel
}

// Refused returns the error for a client that could not be made: there is no connection, or the
// server does not accept it.
func (w Words) Refused(err error) error {
	return fmt.Errorf("%s: %w: %w", w.Package, driver.ErrUnavailable, keyspace.Scrub(err))
}
