package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/grpclimit"
)

type user struct{}

// text is an address of a listener that is not TCP.
type text string

func (text) Network() string  { return "text" }
func (t text) String() string { return string(t) }

func TestKeys(t *testing.T) {
	from := func(addr net.Addr) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: addr})
	}
	tcp := func(ip, zone string) context.Context {
		return from(&net.TCPAddr{IP: net.ParseIP(ip), Port: 1234, Zone: zone})
	}
	with := func(values ...string) context.Context {
		return metadata.NewIncomingContext(t.Context(), metadata.Pairs(values...))
	}
	for _, tt := range []struct {
		name string
		key  grpclimit.KeyFunc
		ctx  context.Context
		want string // none if empty
	}{
		{"IPv4", grpclimit.PeerAddr, tcp("192.0.2.1", ""), "192.0.2.1"},
		{"IPv4-mapped", grpclimit.PeerAddr, tcp("::ffff:192.0.2.1", ""), "192.0.2.1"},
		{"IPv6", grpclimit.PeerAddr, tcp("2001:db8:1:2:3:4:5:6", ""), "2001:db8:1:2::/64"},
		{"zone", grpclimit.PeerAddr, tcp("fe80::1", "eth0"), "fe80::/64"},
		{"text", grpclimit.PeerAddr, from(text("192.0.2.1:1234")), "192.0.2.1"},
		{"text of IPv6", grpclimit.PeerAddr, from(text("[2001:db8::1%e]:1")), "2001:db8::/64"},
		{"bufconn", grpclimit.PeerAddr, from(text("bufconn")), ""},
		{"Unix socket", grpclimit.PeerAddr, from(&net.UnixAddr{Name: "/s", Net: "unix"}), ""},
		{"no IP address", grpclimit.PeerAddr, from(&net.TCPAddr{}), ""},
		{"no address", grpclimit.PeerAddr, from(nil), ""},
		{"no peer", grpclimit.PeerAddr, t.Context(), ""},
		{"method", grpclimit.Method, t.Context(), echoMethod},
		{"metadata", grpclimit.Metadata("X-User"), with("x-user", "ann"), "ann"},
		{"metadata twice", grpclimit.Metadata("x-user"), with("x-user", "a", "x-user", "b"), ""},
		{"no such metadata", grpclimit.Metadata("x-user"), with("x-other", "a"), ""},
		{"no metadata", grpclimit.Metadata("x-user"), t.Context(), ""},
		{"value", grpclimit.ContextValue(user{}), context.WithValue(t.Context(), user{}, "ann"),
			"ann"},
		{"value of another type", grpclimit.ContextValue(user{}),
			context.WithValue(t.Context(), user{}, 42), ""},
		{"no value", grpclimit.ContextValue(user{}), t.Context(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.key(tt.ctx, echoMethod)
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestPeerAddrOfRealPeer: the address that the server of a loopback listener sees.
func TestPeerAddrOfRealPeer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerDay("day", 1))
	var key string
	e := &echo{unary: func(
		ctx context.Context, in *wrapperspb.StringValue,
	) (*wrapperspb.StringValue, error) {
		d, _ := grpclimit.FromContext(ctx)
		key = d.Claims[0].Key
		return in, nil
	}}
	serve(t, e, listener, limited(grpclimit.PerCall(limiter, grpclimit.PeerAddr)))
	if err := call(t.Context(), dial(t, listener.Addr().String())); err != nil {
		t.Fatal(err)
	}
	if key != "127.0.0.1" {
		t.Errorf("key %q", key)
	}
}
