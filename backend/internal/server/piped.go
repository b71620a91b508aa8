package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
)

// Piped is a client library that writes the commands of all callers to few connections and does not tell when: rueidis, and valkey-go,
// which is the same code under another name.
type Piped interface {
	// Do sends a command that is not marked as one that may be sent again: words, then keys, then args.
	Do(ctx context.Context, words, keys, args []string) (reply string, err error)
	// Nodes returns a client of each server.
	Nodes() []Piped
	// ErrorReply returns the server's words if err is an error reply of a server.
	ErrorReply(err error) (text string, ok bool)
	// NotSent tells that err is of a type that only comes before a command is sent.
	NotSent(err error) bool
	// Cluster tells that keys are on several servers, by their slots.
	Cluster() bool
}

// NewPiped is [New] on a Piped client.
func NewPiped(client Piped, words Words, policy ratelimit.Policy, opts Options) (*Store, error) {
	return New(piped{client}, words, policy, opts)
}

type piped struct {
	Piped
}

// Run lets those who wait keep the command from being sent by leaving, but not hurry the client: at a deadline the client would close a
// connection, or give up the making of one that others wait for. Whoever calls Run lets them go in time. Nothing tells when the bytes
// leave, so the gate opens before.
func (p piped) Run(ctx context.Context, gate *Gate, verb, script string, keys, args []string) (string, error) {
	if !gate.Open() {
		return "", context.Canceled // nobody waits
	}
	return p.Do(unhurried{ctx, gate}, []string{verb, script, strconv.Itoa(len(keys))}, keys, args)
}

// unhurried is a context whose end is seen only by those who ask for Err, as the clients do before they send.
type unhurried struct {
	context.Context
	gate *Gate
}

func (unhurried) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (unhurried) Done() <-chan struct{}                   { return nil }

func (u unhurried) Err() error {
	if u.gate.Left() {
		return context.Canceled
	}
	return u.Context.Err()
}

// Infos asks all servers, and is content with those that answer: a cluster may lack a replica.
func (p piped) Infos(ctx context.Context) ([]string, error) {
	nodes := p.Nodes()
	texts, errs := make([]string, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() { texts[i], errs[i] = node.Do(unhurried{ctx, new(Gate)}, []string{"info"}, nil, nil) })
	}
	wg.Wait()
	var infos []string
	err := ratelimit.ErrUnavailable
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

// ErrorReply gives back the code ERR, which the clients cut off. Any other code is a word in capitals.
func (p piped) ErrorReply(err error) (text string, ok bool) {
	text, ok = p.Piped.ErrorReply(err)
	if code, _, _ := strings.Cut(text, " "); code != strings.ToUpper(code) {
		text = "ERR " + text
	}
	return text, ok
}

// Unsent knows of what went before the first byte, such as a handshake of TLS with a server that is not trusted, or speaks none. Where a connection
// broke, or was closed by the client's owner, it may have been with the command on its way.
func (p piped) Unsent(err error) bool {
	var (
		op   *net.OpError
		cert *tls.CertificateVerificationError
		head tls.RecordHeaderError
	)
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &cert) || errors.As(err, &head) || p.NotSent(err)
}

// Lost has nothing to do: the clients ask for the state of a cluster when a connection ends.
func (piped) Lost(error) {}
