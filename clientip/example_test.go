package clientip_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/truewindow/ratelimit/clientip"
)

// A client behind a proxy at 10.0.0.2 sends a made-up address. The proxy appends the real one.
func ExampleXForwardedFor() {
	source := clientip.XForwardedFor(netip.MustParsePrefix("10.0.0.2/32"))

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.2:4711"
	r.Header.Set("X-Forwarded-For", "203.0.113.66, 198.51.100.7")
	fmt.Println(source.Key(r))
	// Output: 198.51.100.7 <nil>
}

// All addresses of one subscriber's IPv6 network have one key.
func ExampleSource_WithIPv6Prefix() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "[2001:db8:1:2:3::1]:4711"
	fmt.Println(clientip.RemoteAddr(r))

	var peer clientip.Source
	fmt.Println(peer.WithIPv6Prefix(56).Key(r))
	// Output:
	// 2001:db8:1:2::/64 <nil>
	// 2001:db8:1::/56 <nil>
}
