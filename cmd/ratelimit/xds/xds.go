// Package xds gets limits from a server of xDS, as Envoy Gateway and Envoy AI Gateway have one for
// envoyproxy/ratelimit.
//
// The protocol is the state-of-the-world variant of the aggregated discovery service
// (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol), for resources of the type
// [Type]. Each response has all resources: those that it lacks are gone.
//
// A stream that ends is opened again, and what is in force stays meanwhile. The first request of a
// stream names no version, since a server that has started again may count its versions from the
// beginning: it would take us to have what it has.
package xds

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
)

// Type is the URL of the type of the resources.
const Type = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Settings say where the server is, and who asks it.
type Settings struct {
	Server string // host:port
	TLS    *TLS   // nil: without TLS

	Node     string            // the id by which the server chooses what to send
	Metadata map[string]string // of the node
	Headers  map[string]string // of the call

	// Connect is how long to wait after an attempt to connect that failed; 0: 3s.
	Connect time.Duration
	// First is how long to wait after a stream that ended. The wait doubles up to Longest as long
	// as streams end without a response. 0: 10s and 60s.
	First, Longest time.Duration
	// NoJitter makes the waits exact. Otherwise each is between half of it and all.
	NoJitter bool

	// MaxMessage is the largest size of a response in bytes; 0: 16 MiB.
	MaxMessage int
}

// A Response has the limits of a server.
type Response struct {
	Version   string // as the server calls it
	Hash      string // of the resources
	Resources []*config.RateLimitConfig
}

// Load puts the limits of a response in force. After an error those of before are.
type Load func(context.Context, Response) error

// A Follower keeps the limits in force that a server has. Create one with [Follow]. It is safe for
// concurrent use.
type Follower struct {
	settings Settings
	load     Load
	log      *slog.Logger

	stop      context.CancelFunc
	done      chan struct{}
	loaded    chan struct{} // closed after the first load
	connected atomic.Bool

	mu      sync.Mutex
	status  watch.Status
	version string

	// Of the goroutine that reads.
	refused  string    // the hash of what was refused last
	repeats  int       // how often it came again
	reason   string    // why there was no stream, as it was logged last
	reasoned time.Time // when it was
}

// Follow follows a server until Close.
func Follow(s Settings, load Load, log *slog.Logger) *Follower {
	ctx, stop := context.WithCancel(context.Background())
	f := &Follower{
		settings: s.withDefaults(), load: load, log: log.With("xds", s.Server, "node", s.Node),
		stop: stop, done: make(chan struct{}), loaded: make(chan struct{}),
	}
	go func() {
		defer close(f.done)
		f.run(ctx)
	}()
	return f
}

// Wait returns when limits were loaded, or with the error of ctx.
func (f *Follower) Wait(ctx context.Context) error {
	select {
	case <-f.loaded:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Status returns what is in force. An Err is that of a response that was refused.
func (f *Follower) Status() watch.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Version returns the server's version of what is in force; empty before a load.
func (f *Follower) Version() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// Connected reports whether a stream is open.
func (f *Follower) Connected() bool { return f.connected.Load() }

// Close ends the stream. It waits for a load that is running.
func (f *Follower) Close() {
	f.stop()
	<-f.done
}

func (s Settings) withDefaults() Settings {
	s.Connect = cmp.Or(s.Connect, 3*time.Second)
	s.First = cmp.Or(s.First, 10*time.Second)
	s.Longest = max(s.First, cmp.Or(s.Longest, time.Minute))
	s.MaxMessage = cmp.Or(s.MaxMessage, 16<<20)
	return s
}

// run reads one stream after the other.
func (f *Follower) run(ctx context.Context) {
	for without := 0; ; {
		opened, responses, err := f.read(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := f.settings.Connect
		if opened {
			if without++; responses > 0 {
				without = 1
			}
			wait = f.settings.after(without)
		}
		wait = f.settings.jitter(wait)
		f.disconnected(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// disconnected logs why there is no stream, and the same reason once a minute.
func (f *Follower) disconnected(err error) {
	const again = time.Minute
	if text := err.Error(); text != f.reason || time.Since(f.reasoned) >= again {
		f.reason, f.reasoned = text, time.Now()
		f.log.Warn("the server of xDS is not connected", "error", err,
			"in force", cmp.Or(f.Version(), "nothing"))
	}
}

// after returns how long to wait after so many streams without a response, or one with some.
func (s *Settings) after(streams int) time.Duration {
	doublings := min(streams-1, 10)
	if s.First > s.Longest>>doublings { // else the product may be too large for a time
		return s.Longest
	}
	return s.First << doublings
}

func (s *Settings) jitter(d time.Duration) time.Duration {
	if s.NoJitter {
		return d
	}
	return d/2 + rand.N(d/2+1)
}

// read reads a stream to its end. opened means that there was a connection.
func (f *Follower) read(ctx context.Context) (opened bool, responses int, err error) {
	s, err := open(ctx, f.settings)
	if err != nil {
		return false, 0, err
	}
	defer s.close()
	f.connected.Store(true)
	defer f.connected.Store(false)
	f.log.Info("connected to the server of xDS")
	for {
		r, err := s.receive()
		if err != nil {
			return true, responses, err
		}
		responses++
		if err := s.answer(r, f.Version(), f.use(ctx, r)); err != nil {
			return true, responses, err
		}
	}
}

// use puts a response in force. Its error is the reason to refuse it.
func (f *Follower) use(ctx context.Context, r received) error {
	err := r.err
	if err == nil && r.Hash != f.Status().Hash { // else it is another version of the same
		err = f.load(ctx, r.Response)
	}
	if err != nil {
		f.refuse(ctx, r, err)
		return err
	}
	f.refused, f.repeats = "", 0
	f.mu.Lock()
	first := f.status.Loaded.IsZero()
	changed := first || f.status.Hash != r.Hash
	if f.status.Err, f.version = nil, r.Version; changed {
		f.status.Loaded, f.status.Hash = time.Now(), r.Hash
	}
	f.mu.Unlock()
	if changed {
		f.log.Info("the configuration is loaded", "version", r.Version, "hash", r.Hash,
			"domains", len(r.Resources))
	}
	if first {
		close(f.loaded)
	}
	return nil
}

// refuse notes that a response is refused. Servers send it again at once when they read that, so
// that one that comes again is answered late.
func (f *Follower) refuse(ctx context.Context, r received, err error) {
	if f.refused == r.Hash && r.Hash != "" {
		const longest = 5 * time.Second // after which a better one is read
		wait := f.settings.jitter(min(100*time.Millisecond<<min(f.repeats, 10), longest))
		f.repeats++
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		return
	}
	f.refused, f.repeats = r.Hash, 0
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Err = err
	f.status.Failed++
	f.log.Error("the configuration is not loaded: what was in force stays",
		"version", r.Version, "error", err)
}

// Fetch returns the limits that a server has, and accepts and refuses nothing.
func Fetch(ctx context.Context, s Settings) (Response, error) {
	stream, err := open(ctx, s.withDefaults())
	if err != nil {
		return Response{}, err
	}
	defer stream.close()
	r, err := stream.receive()
	if err != nil {
		return Response{}, err
	}
	return r.Response, r.err
}

// received is a response with what is wrong with its form.
type received struct {
	Response
	nonce string
	err   error
}

// A stream is an open one.
type stream struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node  *core.Node
	close func()
}

// request sends a request.
func (s *stream) request(r *discovery.DiscoveryRequest) error {
	r.Node, r.TypeUrl = s.node, Type
	if err := s.Send(r); err != nil {
		// The error of Send says only that the stream has ended.
		if _, err := s.Recv(); err != nil {
			return err
		}
		return err
	}
	return nil
}

// receive returns the next response.
func (s *stream) receive() (received, error) {
	answer, err := s.Recv()
	if err != nil {
		return received{}, err
	}
	r := received{nonce: answer.GetNonce()}
	r.Version = answer.GetVersionInfo()
	hash := sha256.New()
	for i, packed := range answer.GetResources() {
		c := new(config.RateLimitConfig)
		if err := packed.UnmarshalTo(c); err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("resource %d: %w", i+1, err))
		}
		r.Resources = append(r.Resources, c)
	}
	if url := answer.GetTypeUrl(); url != Type {
		r.err = fmt.Errorf("resources of the type %q, not of %q", url, Type)
	}
	packed := answer.GetResources()
	slices.SortFunc(packed, func(a, b *anypb.Any) int {
		return bytes.Compare(a.GetValue(), b.GetValue()) // servers keep them in maps
	})
	for _, p := range packed {
		fmt.Fprintf(hash, "%s %d ", p.GetTypeUrl(), len(p.GetValue()))
		hash.Write(p.GetValue())
	}
	r.Hash = hex.EncodeToString(hash.Sum(nil)[:6])
	slices.SortStableFunc(r.Resources, func(a, b *config.RateLimitConfig) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	return r, nil
}

// maxReason bounds the text of a refusal in bytes.
const maxReason = 4 << 10

// answer accepts a response, or refuses it if wrong is not nil: then version is what is in force.
func (s *stream) answer(r received, version string, wrong error) error {
	req := &discovery.DiscoveryRequest{VersionInfo: r.Version, ResponseNonce: r.nonce}
	if wrong != nil {
		text := wrong.Error()
		req.VersionInfo = version
		req.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument),
			Message: strings.ToValidUTF8(text[:min(len(text), maxReason)], "")}
	}
	return s.request(req)
}

func nodeOf(s Settings) *core.Node {
	n := &core.Node{Id: s.Node}
	if len(s.Metadata) > 0 {
		n.Metadata = &structpb.Struct{Fields: make(map[string]*structpb.Value)}
		for name, value := range s.Metadata {
			n.Metadata.Fields[name] = structpb.NewStringValue(value)
		}
	}
	return n
}
