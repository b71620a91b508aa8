package grpclimit_test

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/grpclimit"
)

// forwardings are calls with metadata, and their keys if the peer is a trusted proxy.
var forwardings = []struct {
	name   string
	source clientip.Source
	sent   []string // names and values
	want   string   // of a trusted peer
}{
	{"no metadata", xff, nil, ""},
	{"one address", xff, []string{"x-forwarded-for", "203.0.113.7"}, "203.0.113.7"},
	{"name in capitals", xff, []string{"X-Forwarded-For", "203.0.113.7"}, "203.0.113.7"},
	{"spoofed address to the left", xff,
		[]string{"x-forwarded-for", "198.51.100.1, 203.0.113.7"}, "203.0.113.7"},
	{"spoofed value before", xff,
		[]string{"x-forwarded-for", "198.51.100.1", "x-forwarded-for", "203.0.113.7"},
		"203.0.113.7"},
	{"trusted address to the right", xff,
		[]string{"x-forwarded-for", "198.51.100.1, 203.0.113.7, 127.0.0.9"}, "203.0.113.7"},
	{"trusted value to the right", xff,
		[]string{"x-forwarded-for", "203.0.113.7", "x-forwarded-for", "127.0.0.9"}, "203.0.113.7"},
	{"IPv6", xff, []string{"x-forwarded-for", "[2001:db8:1:2:3::1]:80"}, "2001:db8:1:2::/64"},
	{"no address", xff, []string{"x-forwarded-for", "203.0.113.7, hidden"}, clientip.Unknown},
	{"another header", xff, []string{"forwarded", "for=203.0.113.7"}, ""},
	{"Forwarded", forwarded, []string{"forwarded", `for=198.51.100.1, for="203.0.113.7:80"`},
		"203.0.113.7"},
	{"the peer only", clientip.Source{}, []string{"x-forwarded-for", "203.0.113.7"}, ""},
}

var (
	proxies   = netip.MustParsePrefix("127.0.0.0/8")
	xff       = clientip.XForwardedFor(proxies)
	forwarded = clientip.Forwarded(proxies)
)

// TestClientAddr makes real calls with the metadata of forwardings: over TCP through a proxy that
// is trusted and through one that is not, and over a Unix socket.
func TestClientAddr(t *testing.T) {
	for _, on := range []struct {
		name, network, addr string
		trusted             bool
		peer                string // key of the peer
	}{
		{"trusted", "tcp", "127.0.0.1:0", true, "127.0.0.1"},
		{"not trusted", "tcp", "[::1]:0", false, "::/64"},
		{"Unix socket", "unix", filepath.Join(t.TempDir(), "s"), true, clientip.Unknown},
	} {
		t.Run(on.name, func(t *testing.T) {
			listener, err := net.Listen(on.network, on.addr)
			if err != nil && on.addr == "[::1]:0" {
				t.Skip(err) // no IPv6
			}
			if err != nil {
				t.Fatal(err)
			}
			target := listener.Addr().String()
			if on.network == "unix" {
				target = "unix:" + target
			}
			keys := make(chan string, 1)
			var source clientip.Source
			limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerDay("day", 1000))
			choose := grpclimit.PerCall(limiter,
				func(ctx context.Context, method string) (string, error) {
					return grpclimit.ClientAddr(source)(ctx, method)
				})
			e := &echo{unary: func(
				ctx context.Context, in *wrapperspb.StringValue,
			) (*wrapperspb.StringValue, error) {
				d, _ := grpclimit.FromContext(ctx)
				keys <- d.Claims[0].Key
				return in, nil
			}}
			serve(t, e, listener, limited(choose))
			cc := dial(t, target)
			for _, tt := range forwardings {
				source = tt.source
				want := tt.want
				if want == "" || !on.trusted {
					want = on.peer
				}
				ctx := metadata.AppendToOutgoingContext(t.Context(), tt.sent...)
				if err := call(ctx, cc); err != nil {
					t.Fatal(err)
				}
				if got := <-keys; got != want {
					t.Errorf("%s: key %q, want %q", tt.name, got, want)
				}
			}
		})
	}
}

// TestClientAddrOfOtherPeers: a peer that has no IP address and is on no Unix socket is not
// trusted.
func TestClientAddrOfOtherPeers(t *testing.T) {
	md := metadata.Pairs("x-forwarded-for", "203.0.113.7")
	for name, ctx := range map[string]context.Context{
		"no peer":    t.Context(),
		"no address": peer.NewContext(t.Context(), new(peer.Peer)),
		"bufconn":    peer.NewContext(t.Context(), &peer.Peer{Addr: text("bufconn")}),
	} {
		key, err := grpclimit.ClientAddr(xff)(metadata.NewIncomingContext(ctx, md), echoMethod)
		if key != clientip.Unknown || err != nil {
			t.Errorf("%s: key %q (%v)", name, key, err)
		}
	}
	// A Unix socket without a path.
	ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), md),
		&peer.Peer{Addr: &net.UnixAddr{Net: "unix"}})
	if key, err := grpclimit.ClientAddr(xff)(ctx, echoMethod); key != "203.0.113.7" || err != nil {
		t.Errorf("Unix socket without a path: key %q (%v)", key, err)
	}
}
