package httplimit_test

import (
	"net/netip"
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
		{"IPv4-mapped with zone", "[::ffff:192.0.2.1%eth0]:1234",
			httplimit.RemoteAddr, "192.0.2.1"},
		{"IPv6", "[2001:db8:1:2:3:4:5:6]:1234", httplimit.RemoteAddr, "2001:db8:1:2::/64"},
		{"IPv6 of the same network", "[2001:db8:1:2::ffff]:4321",
			httplimit.RemoteAddr, "2001:db8:1:2::/64"},
		{"IPv6 of another network", "[2001:db8:1:3:3:4:5:6]:1234",
			httplimit.RemoteAddr, "2001:db8:1:3::/64"},
		{"IPv6 without port", "2001:db8::1", httplimit.RemoteAddr, "2001:db8::/64"},
		{"IPv6 with zone", "[fe80::1%eth0]:1234", httplimit.RemoteAddr, "fe80::/64"},
		{"the longest", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
			httplimit.RemoteAddrPrefix(127), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"},
		{"IPv6 by /48", "[2001:db8:1:2:3:4:5:6]:1234", httplimit.RemoteAddrPrefix(48),
			"2001:db8:1::/48"},
		{"IPv6 by /128", "[2001:db8::1%eth0]:1234", httplimit.RemoteAddrPrefix(128),
			"2001:db8::1/128"},
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

// FuzzRemoteAddr: whatever stands in RemoteAddr, the key is one address or one network, in one
// form, or there is none.
func FuzzRemoteAddr(f *testing.F) {
	for _, addr := range []string{"192.0.2.1:1234", "[2001:db8:1:2:3:4:5:6]:1234",
		"[::ffff:192.0.2.1%eth0]:1", "fe80::1%eth0", "@", "", "a:b", "[::]:0"} {
		f.Add(addr, uint8(64))
	}
	f.Fuzz(func(t *testing.T, addr string, bits uint8) {
		r := get()
		r.RemoteAddr = addr
		length := 1 + int(bits)%128
		key, err := httplimit.RemoteAddrPrefix(length)(r)
		if err != nil {
			if key != "" || len(addr) > 20 && strings.Contains(err.Error(), addr) {
				t.Fatalf("%q, %v", key, err)
			}
			return
		}
		if a, err := netip.ParseAddr(key); err == nil {
			if !a.Is4() || a.String() != key {
				t.Fatalf("%q for %q", key, addr)
			}
		} else if p, err := netip.ParsePrefix(key); err != nil || p.Masked().String() != key ||
			p.Bits() != length || p.Addr().Is4In6() {
			t.Fatalf("%q for %q: %v", key, addr, err)
		}
		r.RemoteAddr = key // as of a peer without a port
		if prefix, _, ok := strings.Cut(key, "/"); ok {
			r.RemoteAddr = prefix
		}
		if again, err := httplimit.RemoteAddrPrefix(length)(r); again != key {
			t.Fatalf("%q of %q is %q, %v", r.RemoteAddr, addr, again, err)
		}
	})
}
