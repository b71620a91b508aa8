package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/xdstest"
	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A client follows a server, and notes what it loads. A configuration with the domain "bad" is
// refused.
type client struct {
	*Follower
	mu    sync.Mutex
	loads []string // the names of the resources of each
	log   apitest.Log
}

func follow(t testing.TB, s *xdstest.Server, change func(*Settings)) *client {
	t.Helper()
	settings := Settings{Server: s.Addr, Node: "node", Connect: time.Millisecond,
		First: time.Millisecond, Longest: 10 * time.Millisecond}
	if change != nil {
		change(&settings)
	}
	c := new(client)
	c.Follower = Follow(settings, func(_ context.Context, r Response) error {
		var names []string
		for _, resource := range r.Resources {
			names = append(names, resource.GetName())
		}
		if slices.Contains(names, "bad") {
			return errors.New("bad is bad" + strings.Repeat("日本語", 1000)) // cut within a sign
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.loads = append(c.loads, strings.Join(names, " "))
		return nil
	}, slog.New(slog.NewTextHandler(&c.log, nil)))
	t.Cleanup(c.Close)
	return c
}

func (c *client) want(t testing.TB, loads ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.loads, loads) {
		t.Errorf("loaded %q, want %q", c.loads, loads)
	}
}

// accepted expects a request that accepts a version.
func accepted(t testing.TB, r *discovery.DiscoveryRequest, version string) {
	t.Helper()
	if r.GetErrorDetail() != nil || r.GetVersionInfo() != version ||
		r.GetResponseNonce() != "n"+version || r.GetTypeUrl() != Type {
		t.Errorf("%v does not accept %s", r, version)
	}
}

// refused expects a request that refuses a version, with a text, and has another.
func refused(t testing.TB, r *discovery.DiscoveryRequest, version, has, text string) {
	t.Helper()
	if !strings.Contains(r.GetErrorDetail().GetMessage(), text) || r.GetVersionInfo() != has ||
		r.GetResponseNonce() != "n"+version || r.GetErrorDetail().GetCode() == 0 {
		t.Errorf("%v does not refuse %s with %q and %s in force", r, version, text, has)
	}
}

// TestFollow: each response is accepted or refused with its nonce, what is refused changes nothing,
// and resources that are gone are gone.
func TestFollow(t *testing.T) {
	s := xdstest.New(t, nil)
	c := follow(t, s, func(s *Settings) {
		s.Metadata, s.Headers = map[string]string{"a": "b"}, map[string]string{"X-Key": "k"}
	})
	first := s.Next()
	if first.GetNode().GetId() != "node" || first.GetTypeUrl() != Type ||
		first.GetVersionInfo()+first.GetResponseNonce() != "" ||
		first.GetNode().GetMetadata().GetFields()["a"].GetStringValue() != "b" {
		t.Errorf("the first request is %v", first)
	}
	if got := (<-s.Headers).Get("x-key"); !slices.Equal(got, []string{"k"}) {
		t.Errorf("the header is %q", got)
	}
	if !c.Connected() || !c.Status().Loaded.IsZero() {
		t.Errorf("connected %t, %+v", c.Connected(), c.Status())
	}
	refused(t, s.Send(xdstest.Response(t, "0", xdstest.Domain("bad"))), "0", "", "bad is bad")
	accepted(t, s.Send(xdstest.Response(t, "1", xdstest.Domain("b"), xdstest.Domain("a"))), "1")
	if err := c.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	one := c.Status()
	refused(t, s.Send(xdstest.Response(t, "2", xdstest.Domain("a"), xdstest.Domain("bad"))),
		"2", "1", "bad is bad")
	if got := c.Status(); got.Err == nil || got.Failed != 2 || got.Hash != one.Hash {
		t.Errorf("after a refusal: %+v", got)
	}
	// The same in another order, and under another version.
	accepted(t, s.Send(xdstest.Response(t, "3", xdstest.Domain("a"), xdstest.Domain("b"))), "3")
	if got := c.Status(); got.Err != nil || got.Loaded != one.Loaded || c.Version() != "3" {
		t.Errorf("after the same: %+v, version %s", got, c.Version())
	}
	c.want(t, "a b")
	accepted(t, s.Send(xdstest.Response(t, "4", xdstest.Domain("b"))), "4")
	accepted(t, s.Send(xdstest.Response(t, "5")), "5")
	c.want(t, "a b", "b", "")
}

// TestEmptyFirst: an answer without resources is a configuration.
func TestEmptyFirst(t *testing.T) {
	s := xdstest.New(t, nil)
	c := follow(t, s, nil)
	s.Next()
	accepted(t, s.Send(xdstest.Response(t, "1")), "1")
	if err := c.Wait(t.Context()); err != nil || c.Status().Loaded.IsZero() {
		t.Error(err, c.Status())
	}
}

// TestRefusedAgain: servers send at once again what is refused. It is counted once, and answered
// late, so that the two do not keep each other busy.
func TestRefusedAgain(t *testing.T) {
	s := xdstest.New(t, nil)
	c := follow(t, s, func(s *Settings) { s.NoJitter = true })
	s.Next()
	began := time.Now()
	for range 4 {
		refused(t, s.Send(xdstest.Response(t, "1", xdstest.Domain("bad"))), "1", "", "bad is bad")
	}
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("four refusals took %v", took)
	}
	if got := c.Status(); got.Failed != 1 || strings.Count(c.log.String(), "bad is bad") != 1 {
		t.Errorf("%+v, log:\n%s", got, &c.log)
	}
	refused(t, s.Send(xdstest.Response(t, "2", xdstest.Domain("bad"), xdstest.Domain("a"))),
		"2", "", "bad is bad")
	if c.Status().Failed != 2 {
		t.Errorf("another one is not counted: %+v", c.Status())
	}
	accepted(t, s.Send(xdstest.Response(t, "3", xdstest.Domain("a"))), "3")
	refused(t, s.Send(xdstest.Response(t, "4", xdstest.Domain("bad"), xdstest.Domain("a"))),
		"4", "3", "bad is bad")
	if c.Status().Failed != 3 {
		t.Errorf("one that comes again after a good one is not counted: %+v", c.Status())
	}
	c.want(t, "a")
}

// TestReconnect: what is in force stays while the server is away, and the first request to a new
// one names no version, since its versions may begin anew.
func TestReconnect(t *testing.T) {
	s := xdstest.New(t, nil)
	c := follow(t, s, nil)
	s.Next()
	accepted(t, s.Send(xdstest.Response(t, "7", xdstest.Domain("a"))), "7")
	for i := range 3 {
		s.Stop()
		for c.Connected() {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // some attempts
		if c.Status().Hash == "" || c.Version() == "" {
			t.Error("nothing is in force")
		}
		s.Start(nil)
		if r := s.Next(); r.GetVersionInfo()+r.GetResponseNonce() != "" {
			t.Errorf("round %d: the first request is %v", i, r)
		}
		accepted(t, s.Send(xdstest.Response(t, "1", xdstest.Domain(string(rune('b'+i))))), "1")
	}
	c.want(t, "a", "b", "c", "d")
}

// TestMalformed: what is no configuration is refused, and changes nothing.
func TestMalformed(t *testing.T) {
	s := xdstest.New(t, nil)
	c := follow(t, s, nil)
	s.Next()
	accepted(t, s.Send(xdstest.Response(t, "1", xdstest.Domain("a"))), "1")
	other, err := anypb.New(wrapperspb.String("x"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*discovery.DiscoveryResponse)
		want   string
	}{
		"type of the response": {func(r *discovery.DiscoveryResponse) { r.TypeUrl = "x" },
			`resources of the type "x"`},
		"type of a resource": {func(r *discovery.DiscoveryResponse) {
			r.Resources = append(r.Resources, other)
		}, "resource 2: "},
		"bytes": {func(r *discovery.DiscoveryResponse) {
			r.Resources[0].Value = []byte{0xff}
		}, "resource 1: "},
		"not UTF-8": {func(r *discovery.DiscoveryResponse) {
			r.Resources[0].Value = []byte{0x12, 1, 0xff}
		}, "invalid UTF-8"},
		"no type": {func(r *discovery.DiscoveryResponse) {
			r.Resources[0].TypeUrl = ""
		}, "resource 1: "},
	} {
		r := xdstest.Response(t, name, xdstest.Domain("b"))
		tt.change(r)
		refused(t, s.Send(r), name, "1", tt.want)
	}
	c.want(t, "a")
	if got := c.Status(); got.Failed != 5 {
		t.Errorf("%+v", got)
	}
}

// TestTooLarge: a response beyond the bound ends the stream, and is no end of the client.
func TestTooLarge(t *testing.T) {
	s := xdstest.New(t, nil)
	c := follow(t, s, func(s *Settings) { s.MaxMessage = 1000 })
	s.Next()
	// What is said next is the first request of a new stream.
	s.Send(xdstest.Response(t, "1", xdstest.Domain(strings.Repeat("x", 2000))))
	accepted(t, s.Send(xdstest.Response(t, "2", xdstest.Domain("a"))), "2")
	if !strings.Contains(c.log.String(), "larger than max") {
		t.Errorf("log:\n%s", &c.log)
	}
	c.want(t, "a")
}

// TestTLS: a server without the right certificate is not asked, one that wants a certificate gets
// it, and files that change are read for the next connection.
func TestTLS(t *testing.T) {
	own, others := apitest.NewAuthority(t), apitest.NewAuthority(t)
	own.Issue("server")
	others.Issue("server")
	own.Issue("client")
	pairOf := func(a *apitest.Authority) *tls.Config {
		pair, err := tls.LoadX509KeyPair(a.Path("server.pem"), a.Path("server.key"))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(own.Cert)
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots,
			ClientAuth: tls.RequireAndVerifyClientCert}
	}
	s := xdstest.New(t, pairOf(others))
	c := follow(t, s, func(s *Settings) {
		s.TLS = &TLS{Cert: own.Path("client.pem"), Key: own.Path("client.key"),
			CA: own.Path("ca.pem")}
	})
	logs := func(text string) {
		t.Helper()
		for began := time.Now(); !strings.Contains(c.log.String(), text); {
			if time.Since(began) > xdstest.Patience {
				t.Fatalf("no %q in the log:\n%s", text, &c.log)
			}
			time.Sleep(time.Millisecond)
		}
	}
	logs("x509: certificate signed by unknown authority")
	if c.Connected() || len(s.Requests) > 0 {
		t.Error("a server without the right certificate was asked")
	}
	s.Stop()
	s.Start(pairOf(own))
	s.Next()
	accepted(t, s.Send(xdstest.Response(t, "1", xdstest.Domain("a"))), "1")

	// Another authority signs now: the server has its certificate first, then the client trusts it.
	s.Stop()
	s.Start(pairOf(others))
	time.Sleep(20 * time.Millisecond) // some attempts
	others.Write("copy.pem", "CERTIFICATE", others.Cert.Raw)
	own.Write("ca.pem", "CERTIFICATE", others.Cert.Raw)
	s.Next()
	accepted(t, s.Send(xdstest.Response(t, "2", xdstest.Domain("b"))), "2")

	// A file that is no certificate.
	s.Stop()
	apitest.WriteFile(t, own.Path("client.pem"), "nothing")
	s.Start(pairOf(others))
	logs("failed to find any PEM data")
	c.want(t, "a", "b")
}

// TestFetch: a fetch gets what there is, or says why not.
func TestFetch(t *testing.T) {
	s := xdstest.New(t, nil)
	go func() { s.Responses <- xdstest.Response(t, "1", xdstest.Domain("a")) }()
	got, err := Fetch(t.Context(), Settings{Server: s.Addr, Node: "node"})
	if err != nil || got.Version != "1" || len(got.Resources) != 1 || got.Hash == "" {
		t.Errorf("%+v %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Fetch(ctx, Settings{Server: s.Addr}); err == nil {
		t.Error("no error of a server that says nothing")
	}
	s.Stop()
	_, err = Fetch(t.Context(), Settings{Server: s.Addr})
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("the error is %v", err)
	}
}

// TestClose: a follower ends while it waits for a server, and while nobody has limits for it.
func TestClose(t *testing.T) {
	s := xdstest.New(t, nil)
	c := follow(t, s, nil)
	s.Next()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	c.Close()
	s.Stop()
	c = follow(t, s, func(s *Settings) { s.Connect = time.Hour })
	time.Sleep(10 * time.Millisecond)
	c.Close()
}

// TestWaits: waits double up to the longest, also where a product would be too large for a time.
func TestWaits(t *testing.T) {
	const century = 876_000 * time.Hour
	for _, tt := range []struct {
		first, longest time.Duration
		streams        int
		want           time.Duration
	}{
		{time.Second, time.Minute, 1, time.Second}, {time.Second, time.Minute, 3, 4 * time.Second},
		{time.Second, time.Minute, 7, time.Minute},
		{time.Second, time.Minute, 1 << 20, time.Minute},
		{century, 0, 1, century}, {century, 0, 99, century},
	} {
		s := Settings{First: tt.first, Longest: tt.longest}.withDefaults()
		got := s.after(tt.streams)
		if late := s.jitter(got); got != tt.want || late < got/2 || late > got {
			t.Errorf("%+v: %v, with jitter %v", tt, got, late)
		}
	}
}
