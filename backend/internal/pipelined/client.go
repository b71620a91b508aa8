// Package pipelined makes stores on client libraries that pipeline commands by themselves, with or
// without a cache of refusals.
package pipelined

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/backend/internal/server"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// Client is a client library that pipelines the commands of all callers over few connections and
// does not report when it sends them: rueidis, and valkey-go, which is the same code under another
// name.
type Client interface {
	// Do sends the command of words, then keys, then args. It must not mark the command as one that
	// may be sent again.
	Do(ctx context.Context, words, keys, args []string) (reply string, err error)
	// DoTracked is Do for a command that reads, in one transaction with CLIENT CACHING YES.
	DoTracked(ctx context.Context, words, keys, args []string) (reply string, err error)
	// Nodes returns a client of each server.
	Nodes() []Client
	// ErrorReply returns the text if err is an error reply of a server.
	ErrorReply(err error) (text string, ok bool)
	// NotSent reports whether err has a type that only occurs before a command is sent.
	NotSent(err error) bool
	// Untracked reports whether err is that of a connection for which the server refused to track
	// keys. Then nothing was sent.
	Untracked(err error) bool
	// Cluster reports whether keys are on several servers, by their slots.
	Cluster() bool
	// Close closes the client.
	Close()
}

var _ server.Tracker = adapter{}

// NewStore is [server.New] on a pipelining client.
func NewStore(client Client, words server.Words, opts serverstore.Options) (*server.Store, error) {
	return server.New(adapter{client}, words, opts)
}

// adapter makes a [server.Client] of a Client.
type adapter struct {
	Client
}

// Run does not pass the deadline on: at a deadline the client would close a connection, or stop
// connecting, while others wait for it. The callers stop waiting in time by themselves, and the
// command is not sent if they do so before. No client reports when it sends a command, so the gate
// opens first.
func (a adapter) Run(ctx context.Context, c *server.Command) {
	if !c.Gate.Open() {
		c.Err = context.Canceled // no caller waits
		return
	}
	c.Reply, c.Err = a.Do(quietContext{ctx, c.Gate}, words(c), c.Keys, c.Args)
}

// RunAll leaves the pipelining to the client. It passes on what the client panics with.
func (a adapter) RunAll(ctx context.Context, cs []*server.Command) {
	var wg sync.WaitGroup
	panics := make(chan any, len(cs))
	for _, c := range cs {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
			}()
			a.Run(ctx, c)
		})
	}
	wg.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
}

// RunTracked runs c in a transaction, which a client that follows a redirection sends again as a
// whole. So no script runs without the server tracking what it reads.
func (a adapter) RunTracked(ctx context.Context, c *server.Command) {
	c.Reply, c.Err = a.DoTracked(quietContext{ctx, c.Gate}, words(c), c.Keys, c.Args)
}

func words(c *server.Command) []string {
	return []string{c.Verb, c.Script, strconv.Itoa(len(c.Keys))}
}

// quietContext is a context without a deadline and without a Done channel. Only Err reports its
// end; the clients call it before they send.
type quietContext struct {
	context.Context
	gate *gate.Gate
}

func (quietContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (quietContext) Done() <-chan struct{}                   { return nil }

func (c quietContext) Err() error {
	if c.gate.Abandoned() {
		return context.Canceled
	}
	return c.Context.Err()
}

// Infos asks all servers, and fails only if none answers: a cluster may lack a replica.
func (a adapter) Infos(ctx context.Context) ([]string, error) {
	nodes := a.Nodes()
	texts, errs := make([]string, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() {
			ctx := quietContext{ctx, new(gate.Gate)}
			texts[i], errs[i] = node.Do(ctx, []string{"info"}, nil, nil)
		})
	}
	wg.Wait()
	var infos []string
	err := driver.ErrUnavailable
	for i := range nodes {
		if errs[i] == nil {
			infos = append(infos, texts[i])
		} else {
			err = errs[i]
		}
	}
	if len(infos) > 0 {
		err = nil
	}
	return infos, err
}

// ErrorReply adds the code ERR, which the clients remove. Any other code is a word in capitals.
func (a adapter) ErrorReply(err error) (text string, ok bool) {
	text, ok = a.Client.ErrorReply(err)
	if code, _, _ := strings.Cut(text, " "); code != strings.ToUpper(code) {
		text = "ERR " + text
	}
	return text, ok
}

// Unsent recognizes errors from before the first byte of a command: a failed dial, and a TLS
// handshake with a server that is not trusted or does not speak TLS. (A [tls.RecordHeaderError] has
// a Conn only if it is about the first record.) Where a connection broke later, or the client was
// closed, the command may have been on its way.
func (a adapter) Unsent(err error) bool {
	var (
		op   *net.OpError
		cert *tls.CertificateVerificationError
		head tls.RecordHeaderError
	)
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &cert) ||
		errors.As(err, &head) && head.Conn != nil || a.NotSent(err) ||
		a.Untracked(err)
}

// Lost does nothing: the clients reload the state of a cluster when a connection ends.
func (adapter) Lost(error) {}
