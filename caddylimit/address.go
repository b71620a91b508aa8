package caddylimit

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/truewindow/ratelimit/clientip"
)

// client is where the server says who the client is.
var client = clientip.FromContext(clientAddress)

func clientAddress(ctx context.Context) string {
	address, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	return address
}

// addresses has the placeholders that are addresses. An IPv6 address counts by its /64 network,
// since a client has all addresses of one.
var addresses = map[string]keyPart{
	"{http.vars." + caddyhttp.ClientIPVarKey + "}": clientKey,
	"{client_ip}":                clientKey, // which a Caddyfile writes in full
	"{http.request.remote.host}": remoteKey,
	"{remote_host}":              remoteKey,
}

func clientKey(r *http.Request, _ *caddy.Replacer) (string, error) {
	address := clientAddress(r.Context())
	if addr, err := netip.ParseAddr(address); err == nil && addr.Is4() {
		return address, nil // an IPv4 address has one spelling
	}
	return client.Key(r)
}

func remoteKey(r *http.Request, _ *caddy.Replacer) (string, error) { return clientip.RemoteAddr(r) }
