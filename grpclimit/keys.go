package grpclimit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/truewindow/ratelimit/clientip"
)

// A KeyFunc returns the key of a call, such as the user or address that sent it, or the method that
// it calls. An error or an empty key means that the call cannot be attributed; the client does not
// get the text of the error. A KeyFunc must be safe for concurrent use.
//
// A key that the client can choose, such as metadata that is not verified, limits nothing: the
// client can send another one with each call.
type KeyFunc func(ctx context.Context, method string) (string, error)

// Errors of key functions. They quote no data of the call.
var (
	errNoAddr     = errors.New("grpclimit: the peer has no IP address")
	errNoMetadata = errors.New("grpclimit: the metadata value is missing or repeated")
	errNoValue    = errors.New("grpclimit: the context of the call has no such string")
)

// Method is a KeyFunc whose key is the full method, so all callers of a method share one limit.
func Method(_ context.Context, method string) (string, error) { return method, nil }

// Metadata returns a KeyFunc for servers whose key is the value that the client has sent under
// name; the case of name does not matter. A call without this value, or with several, cannot be
// attributed. The client can send any value: use Metadata only if the server or a proxy in front of
// it verifies the value.
func Metadata(name string) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) != 1 {
			return "", errNoMetadata
		}
		return values[0], nil
	}
}

// ContextValue returns a KeyFunc whose key is the string that the call's context has under key,
// such as the user that an earlier interceptor has authenticated. A call without a string, or with
// an empty one, cannot be attributed.
func ContextValue(key any) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		value, ok := ctx.Value(key).(string)
		if !ok {
			return "", errNoValue
		}
		return value, nil
	}
}

// PeerAddr is a KeyFunc for servers whose key is the IP address of the peer. An IPv6 address counts
// as its /64 network, the smallest that a subscriber gets, and an IPv4-mapped IPv6 address as the
// IPv4 address. Ports and zones do not matter. A peer on a Unix socket cannot be attributed.
//
// Behind a proxy the peer is the proxy, and all its clients share one key; use [ClientAddr] there.
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

// ClientAddr returns a KeyFunc for servers behind proxies, whose key is the address that source
// finds in the metadata, such as x-forwarded-for. Metadata is what [clientip] calls headers, and
// the peer is that of the connection. All calls whose client is unknown have the key
// [clientip.Unknown].
func ClientAddr(source clientip.Source) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		r := new(http.Request).WithContext(ctx)
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
			if p.Addr.Network() == "unix" {
				r.RemoteAddr = "@" // as in net/http, whatever the path
			}
		}
		md, _ := metadata.FromIncomingContext(ctx)
		r.Header = make(http.Header, len(md))
		for name, values := range md {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
		return source.Key(r)
	}
}

func addrKey(addr netip.Addr) (string, error) {
	if !addr.IsValid() {
		return "", errNoAddr
	}
	return clientip.AddrKey(addr, clientip.DefaultIPv6Prefix), nil
}
