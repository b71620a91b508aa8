package pipelined

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/backend/internal/server"
)

// fakeClient is a client with a fixed reply.
type fakeClient struct {
	reply string
	err   error
	nodes []Client
	do    func(context.Context)
}

func (f fakeClient) Do(ctx context.Context, _, _, _ []string) (string, error) {
	if f.do != nil {
		f.do(ctx)
	}
	return f.reply, f.err
}
func (f fakeClient) DoTracked(ctx context.Context, words, keys, args []string) (string, error) {
	return f.Do(ctx, words, keys, args)
}
func (f fakeClient) Nodes() []Client                   { return f.nodes }
func (fakeClient) ErrorReply(err error) (string, bool) { return err.Error(), true }
func (fakeClient) NotSent(err error) bool              { return errors.Is(err, net.ErrClosed) }
func (fakeClient) Untracked(err error) bool            { return errors.Is(err, errUntracked) }
func (fakeClient) Cluster() bool                       { return false }
func (fakeClient) Close()                              {}

var errUntracked = errors.New("untracked")

func errorReply(text string) string {
	s, _ := adapter{fakeClient{}}.ErrorReply(errors.New(text))
	return s
}
func infos(nodes ...Client) (texts []string, err error) {
	return adapter{fakeClient{nodes: nodes}}.Infos(context.Background())
}

func TestErrorReply(t *testing.T) {
	for text, want := range map[string]string{
		"NOSCRIPT No matching script.":          "NOSCRIPT No matching script.",
		"unknown command 'evalsha'":             "ERR unknown command 'evalsha'",
		"Error compiling script (new function)": "ERR Error compiling script (new function)",
		"Protocol error: unauthenticated bulk " +
			"length": "ERR Protocol error: unauthenticated bulk length",
		"max number of clients reached": "ERR max number of clients reached",
		"MOVED 12182 127.0.0.1:7002":    "MOVED 12182 127.0.0.1:7002",
		"This instance has cluster support " +
			"disabled": "ERR This instance has cluster support disabled",
		"OOM command not allowed when used memory > " +
			"…": "OOM command not allowed when used memory > …",
	} {
		if got := errorReply(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestUnsent(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "dial", Err: errors.New("refused")}: true,
		&net.OpError{Op: "read", Err: errors.New("reset")}:   false,
		net.ErrClosed:            true, // which NotSent recognizes
		errUntracked:             true,
		context.DeadlineExceeded: false,
	} {
		if got := (adapter{fakeClient{}}).Unsent(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

// TestInfos: it is enough if some servers of a cluster answer.
func TestInfos(t *testing.T) {
	down := errors.New("down")
	a, b, dead := fakeClient{reply: "a"}, fakeClient{reply: "b"}, fakeClient{err: down}
	if texts, err := infos(a, dead, b); err != nil || !slices.Equal(texts, []string{"a", "b"}) {
		t.Errorf("%q, %v", texts, err)
	}
	if _, err := infos(dead, dead); !errors.Is(err, down) {
		t.Error(err)
	}
	if _, err := infos(); err == nil {
		t.Error("no error without servers")
	}
}

// TestAbandoned: a client is not interrupted when callers stop waiting, and sees it if it checks
// before it sends.
func TestAbandoned(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var g gate.Gate
	called := 0
	client := adapter{fakeClient{do: func(ctx context.Context) {
		called++
		if _, ok := ctx.Deadline(); ok || ctx.Done() != nil || ctx.Err() != nil {
			t.Error("the client sees a deadline or an end")
		}
		g.Abandon()
		if ctx.Err() == nil {
			t.Error("the client does not see that no caller waits")
		}
	}}}
	c := server.Command{Gate: &g, Verb: "evalsha"}
	client.Run(ctx, &c)
	if client.Run(ctx, &c); c.Err == nil || called != 1 {
		t.Errorf("called %d times, %v", called, c.Err)
	}
	cancel()
	if err := (quietContext{ctx, new(gate.Gate)}).Err(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
