package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"connectrpc.com/connect/v2"

	"github.com/truewindow/ratelimit/clientip"
)

// A KeyFunc returns the key of a call, such as the user or address that sent it. An error or an
// empty key means that the call cannot be attributed; the client does not get the text of the
// error. A KeyFunc must be safe for concurrent use.
//
// A key that the client can choose, such as a header that is not verified, limits nothing: the
// client can send another one with each call.
type KeyFunc func(ctx context.Context, procedure string) (string, error)

// Errors of key functions. They quote no data of the call.
var (
	errNoAddr   = errors.New("connectlimit: the peer has no IP address")
	errNoHeader = errors.New("connectlimit: the header is missing or repeated")
	errNoValue  = errors.New("connectlimit: the context of the call has no such string")
)

// Procedure is a KeyFunc whose key is the procedure, so all callers of a procedure share one limit.
func Procedure(_ context.Context, procedure string) (string, error) { return procedure, nil }

// Header returns a KeyFunc for servers whose key is the value of a request header; the case of name
// does not matter. A call without this header, or with several, cannot be attributed. The client
// can send any value: use Header only if the server or a proxy in front of it verifies the value.
func Header(name string) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		info, ok := connect.CallInfoForServerContext(ctx)
		if !ok {
			return "", errNoHeader
		}
		values := info.RequestHeader().Values(name)
		if len(values) != 1 {
			return "", errNoHeader
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
	info, ok := connect.CallInfoForServerContext(ctx)
	if !ok {
		return "", errNoAddr
	}
	peer, err := netip.ParseAddrPort(info.PeerAddr)
	if err != nil {
		return "", errNoAddr
	}
	return clientip.AddrKey(peer.Addr(), clientip.DefaultIPv6Prefix), nil
}

// ClientAddr returns a KeyFunc for servers behind proxies, whose key is the address that source
// finds in the headers, such as X-Forwarded-For. All calls whose client is unknown have the key
// [clientip.Unknown].
func ClientAddr(source clientip.Source) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		info, ok := connect.CallInfoForServerContext(ctx)
		if !ok {
			return "", errNoAddr
		}
		r := new(http.Request).WithContext(ctx)
		r.RemoteAddr, r.Header = info.PeerAddr, make(http.Header)
		for name, values := range info.RequestHeader().All() {
			r.Header[name] = values
		}
		return source.Key(r)
	}
}
