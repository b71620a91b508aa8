package grpclimit

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/truewindow/ratelimit/clientip"
)

// A KeyFunc returns the key of a call: the user or address that it is from, or what it asks for. An
// error or an empty key means that the call cannot be attributed; the client does not get the text
// of the error. Many goroutines call it at once.
//
// A key that the client can choose, such as metadata that nobody has verified, limits nothing: the
// client chooses another one for each call.
type KeyFunc func(ctx context.Context, method string) (string, error)

// Errors of key functions. They quote nothing of the call.
var (
	errNoAddr     = errors.New("grpclimit: the peer has no IP address")
	errNoMetadata = errors.New("grpclimit: the metadata does not have exactly one such value")
	errNoValue    = errors.New("grpclimit: the context has no such value")
)

// Method is the KeyFunc of the full method: all callers share its limit.
func Method(_ context.Context, method string) (string, error) { return method, nil }

// Metadata returns the KeyFunc of the value that the client has sent under this name. A call with
// no value or with several cannot be attributed. It is for servers, and for metadata that the
// server or a proxy in front of it verifies.
func Metadata(name string) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) != 1 {
			return "", errNoMetadata
		}
		return values[0], nil
	}
}

// ContextValue returns the KeyFunc of the string that the call's context has under key: what an
// interceptor before this one has put there, such as the user whom it has authenticated.
func ContextValue(key any) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		value, ok := ctx.Value(key).(string)
		if !ok {
			return "", errNoValue
		}
		return value, nil
	}
}

// PeerAddr is the KeyFunc of the peer's IP address, for servers: an IPv4 address, or the /64
// network of an IPv6 address, the least that one subscriber has. An IPv4-mapped IPv6 address counts
// as the IPv4 address, and zones do not matter. A peer on a Unix socket cannot be attributed.
//
// Behind a proxy the peer is the proxy, and all its clients would share one limit.
func PeerAddr(ctx context.Context, _ string) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", errNoAddr
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return addrKey(tcp.AddrPort().Addr())
	}
	ap, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return "", errNoAddr
	}
	return addrKey(ap.Addr())
}

func addrKey(addr netip.Addr) (string, error) {
	if !addr.IsValid() {
		return "", errNoAddr
	}
	return clientip.AddrKey(addr, clientip.DefaultIPv6Prefix), nil
}
