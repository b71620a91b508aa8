package server

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
)

// fakePiped answers what it is told to.
type fakePiped struct {
	reply string
	err   error
	nodes []Piped
	do    func(context.Context)
}

func (f fakePiped) Do(ctx context.Context, _, _, _ []string) (string, error) {
	if f.do != nil {
		f.do(ctx)
	}
	return f.reply, f.err
}
func (f fakePiped) Nodes() []Piped                    { return f.nodes }
func (fakePiped) ErrorReply(err error) (string, bool) { return err.Error(), true }
func (fakePiped) NotSent(err error) bool              { return errors.Is(err, net.ErrClosed) }
func (fakePiped) Cluster() bool                       { return false }
func errorReply(text string) string {
	s, _ := piped{fakePiped{}}.ErrorReply(errors.New(text))
	return s
}
func infos(nodes ...Piped) (texts []string, err error) {
	return piped{fakePiped{nodes: nodes}}.Infos(context.Background())
}

func TestPipedErrorReply(t *testing.T) {
	for text, want := range map[string]string{
		"NOSCRIPT No matching script.":                 "NOSCRIPT No matching script.",
		"unknown command 'evalsha'":                    "ERR unknown command 'evalsha'",
		"Error compiling script (new function)":        "ERR Error compiling script (new function)",
		"Protocol error: unauthenticated bulk length":  "ERR Protocol error: unauthenticated bulk length",
		"max number of clients reached":                "ERR max number of clients reached",
		"MOVED 12182 127.0.0.1:7002":                   "MOVED 12182 127.0.0.1:7002",
		"This instance has cluster support disabled":   "ERR This instance has cluster support disabled",
		"OOM command not allowed when used memory > …": "OOM command not allowed when used memory > …",
	} {
		if got := errorReply(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPipedUnsent(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "dial", Err: errors.New("refused")}: true,
		&net.OpError{Op: "read", Err: errors.New("reset")}:   false,
		net.ErrClosed:            true, // what NotSent knows
		context.DeadlineExceeded: false,
	} {
		if got := (piped{fakePiped{}}).Unsent(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

// TestPipedInfos holds that the servers of a cluster that answer are enough.
func TestPipedInfos(t *testing.T) {
	down := errors.New("down")
	a, b, dead := fakePiped{reply: "a"}, fakePiped{reply: "b"}, fakePiped{err: down}
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

// TestPipedSeesLeaving holds that a client is not hurried by those who leave, and that it learns of it when it asks before it sends.
func TestPipedSeesLeaving(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var gate Gate
	asked := 0
	client := piped{fakePiped{do: func(ctx context.Context) {
		asked++
		if _, ok := ctx.Deadline(); ok || ctx.Done() != nil || ctx.Err() != nil {
			t.Error("the client is hurried")
		}
		gate.leave()
		if ctx.Err() == nil {
			t.Error("the client does not learn that nobody waits")
		}
	}}}
	client.Run(ctx, &gate, "evalsha", "", nil, nil)
	if _, err := client.Run(ctx, &gate, "evalsha", "", nil, nil); err == nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	cancel()
	if err := (unhurried{ctx, new(Gate)}).Err(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
