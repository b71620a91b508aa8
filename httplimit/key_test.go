package httplimit_test

import (
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/httplimit"
)

func TestRemoteAddr(t *testing.T) {
	for _, tt := range []struct {
		name, addr string
		key        httplimit.KeyFunc
		want       string
	}{
		{"IPv4", "192.0.2.1:1234", httplimit.RemoteAddr, "192.0.2.1"},
		{"IPv4 without port", "192.0.2.1", httplimit.RemoteAddr, "192.0.2.1"},
		{"IPv4-mapped", "[::ffff:192.0.2.1]:1234", httplimit.RemoteAddr, "192.0.2.1"},
		{"IPv4-mapped with zone", "[::ffff:192.0.2.1%eth0]:1234", httplimit.RemoteAddr, "192.0.2.1"},
		{"IPv6", "[2001:db8:1:2:3:4:5:6]:1234", httplimit.RemoteAddr, "2001:db8:1:2::/64"},
		{"IPv6 of the same network", "[2001:db8:1:2::ffff]:4321", httplimit.RemoteAddr, "2001:db8:1:2::/64"},
		{"IPv6 of another network", "[2001:db8:1:3:3:4:5:6]:1234", httplimit.RemoteAddr, "2001:db8:1:3::/64"},
		{"IPv6 without port", "2001:db8::1", httplimit.RemoteAddr, "2001:db8::/64"},
		{"IPv6 with zone", "[fe80::1%eth0]:1234", httplimit.RemoteAddr, "fe80::/64"},
		{"the longest", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", httplimit.RemoteAddrPrefix(127), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"},
		{"IPv6 by /48", "[2001:db8:1:2:3:4:5:6]:1234", httplimit.RemoteAddrPrefix(48), "2001:db8:1::/48"},
		{"IPv6 by /128", "[2001:db8::1%eth0]:1234", httplimit.RemoteAddrPrefix(128), "2001:db8::1/128"},
		{"IPv4 by /48 of IPv6", "192.0.2.1:1234", httplimit.RemoteAddrPrefix(48), "192.0.2.1"},
		{"empty", "", httplimit.RemoteAddr, ""},
		{"Unix socket", "@", httplimit.RemoteAddr, ""},
		{"name", "secret-key:80", httplimit.RemoteAddr, ""},
		{"port only", ":80", httplimit.RemoteAddr, ""},
		{"port out of range", "192.0.2.1:70000", httplimit.RemoteAddr, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := get()
			r.RemoteAddr = tt.addr
			got, err := tt.key(r)
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
			if err != nil && tt.addr != "" && strings.Contains(err.Error(), tt.addr) {
				t.Errorf("the error quotes the address: %v", err)
			}
		})
	}
}
