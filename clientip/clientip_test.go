package clientip_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/truewindow/ratelimit/clientip"
)

// request returns a request of peer with lines of a header.
func request(peer, header string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func checkKey(t *testing.T, s clientip.Source, r *http.Request, want string) {
	t.Helper()
	if key, err := s.Key(r); key != want || err != nil {
		t.Errorf("%q, %v; want %q", key, err, want)
	}
	if addr := s.Addr(r); addr.IsValid() == (want == clientip.Unknown) ||
		addr.Is4In6() || addr.Zone() != "" {
		t.Errorf("address %v for key %q", addr, want)
	}
}

func TestRemoteAddr(t *testing.T) {
	var peer clientip.Source
	for _, tt := range []struct {
		name, addr string
		source     clientip.Source
		want       string
	}{
		{"IPv4", "192.0.2.1:1234", peer, "192.0.2.1"},
		{"IPv4 without port", "192.0.2.1", peer, "192.0.2.1"},
		{"IPv4-mapped", "[::ffff:192.0.2.1]:1234", peer, "192.0.2.1"},
		{"IPv4-mapped with zone", "[::ffff:192.0.2.1%eth0]:1234", peer, "192.0.2.1"},
		{"IPv6", "[2001:db8:1:2:3:4:5:6]:1234", peer, "2001:db8:1:2::/64"},
		{"IPv6 of the same network", "[2001:db8:1:2::ffff]:4321", peer, "2001:db8:1:2::/64"},
		{"IPv6 of another network", "[2001:db8:1:3:3:4:5:6]:1234", peer, "2001:db8:1:3::/64"},
		{"IPv6 without port", "2001:db8::1", peer, "2001:db8::/64"},
		{"IPv6 with zone", "[fe80::1%eth0]:1234", peer, "fe80::/64"},
		{"the longest", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
			peer.WithIPv6Prefix(127), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"},
		{"IPv6 by /1", "[ffff::1]:1", peer.WithIPv6Prefix(1), "8000::/1"},
		{"IPv6 by /48", "[2001:db8:1:2:3:4:5:6]:1234", peer.WithIPv6Prefix(48),
			"2001:db8:1::/48"},
		{"IPv6 by /128", "[2001:db8::1%eth0]:1234", peer.WithIPv6Prefix(128),
			"2001:db8::1/128"},
		{"IPv4 by /48 of IPv6", "192.0.2.1:1234", peer.WithIPv6Prefix(48), "192.0.2.1"},
		{"IPv4 by /24", "192.0.2.255:1234", peer.WithIPv4Prefix(24), "192.0.2.0/24"},
		{"IPv4 by /1", "192.0.2.1:1234", peer.WithIPv4Prefix(1), "128.0.0.0/1"},
		{"IPv4 by /32", "192.0.2.1:1234", peer.WithIPv4Prefix(32), "192.0.2.1"},
		{"IPv4-mapped by /24", "[::ffff:192.0.2.1]:1", peer.WithIPv4Prefix(24), "192.0.2.0/24"},
		{"IPv6 by /24 of IPv4", "[2001:db8::1]:1", peer.WithIPv4Prefix(24), "2001:db8::/64"},
		{"both", "192.0.2.1:1", peer.WithIPv4Prefix(24).WithIPv6Prefix(48), "192.0.2.0/24"},
		{"NAT64", "[64:ff9b::192.0.2.1]:1234", peer, "192.0.2.1"},
		{"NAT64 in hexadecimal", "[64:ff9b::c000:201%eth0]:1234", peer, "192.0.2.1"},
		{"NAT64 by /24", "[64:ff9b::192.0.2.1]:1", peer.WithIPv4Prefix(24), "192.0.2.0/24"},
		{"NAT64 for local use", "[64:ff9b:1::192.0.2.1]:1", peer, "64:ff9b:1::/64"},
		{"beside NAT64", "[64:ff9b::1:c000:201]:1", peer, "64:ff9b::/64"},
		{"empty", "", peer, "unknown"},
		{"Unix socket", "@", peer, "unknown"},
		{"name", "example.com:80", peer, "unknown"},
		{"port only", ":80", peer, "unknown"},
		{"port out of range", "192.0.2.1:70000", peer, "unknown"},
		{"headers do not count", "192.0.2.1:1", peer, "192.0.2.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(tt.addr, "X-Forwarded-For", "203.0.113.9")
			r.Header.Set("X-Real-IP", "203.0.113.9")
			r.Header.Set("True-Client-IP", "203.0.113.9")
			r.Header.Set("Forwarded", "for=203.0.113.9")
			checkKey(t, tt.source, r, tt.want)
		})
	}
	key, err := clientip.RemoteAddr(request("192.0.2.1:1", ""))
	if key != "192.0.2.1" || err != nil {
		t.Errorf("RemoteAddr: %q, %v", key, err)
	}
}

const (
	proxy  = "10.0.0.1:4711"
	client = "198.51.100.7"
	spoof  = "203.0.113.66"
)

func TestXForwardedFor(t *testing.T) {
	trusting := clientip.XForwardedFor(prefixes("10.0.0.0/8", "2001:db8:ff::/48", "10.1.0.0/16")...)
	first, second := clientip.XForwardedForAt(1), clientip.XForwardedForAt(2)
	for _, tt := range []struct {
		name   string
		source clientip.Source
		peer   string
		lines  []string
		want   string
	}{
		{"one proxy", trusting, proxy, []string{client}, client},
		{"two proxies", trusting, proxy, []string{client + ", 10.0.0.2"}, client},
		{"two lines", trusting, proxy, []string{client, "10.0.0.2"}, client},
		{"proxies on IPv6", trusting, "[2001:db8:ff::1]:1",
			[]string{client + ",2001:db8:ff:9::2"}, client},
		{"IPv4-mapped proxy", trusting, "[::ffff:10.0.0.1]:1", []string{client}, client},
		{"IPv4-mapped proxy in the list", trusting, proxy,
			[]string{client + ", ::ffff:10.0.0.2"}, client},
		{"proxy with zone", trusting, "[2001:db8:ff::1%eth0]:1", []string{client}, client},
		{"tabs and no spaces", trusting, proxy, []string{"\t" + client + "\t,10.0.0.2"}, client},
		{"with port", trusting, proxy, []string{client + ":80"}, client},
		{"IPv6", trusting, proxy, []string{"2001:db8::1"}, "2001:db8::/64"},
		{"IPv6 in brackets", trusting, proxy, []string{"[2001:db8::1]"}, "2001:db8::/64"},
		{"IPv6 with port", trusting, proxy, []string{"[2001:db8::1]:443"}, "2001:db8::/64"},
		{"IPv6 with zone", trusting, proxy, []string{"fe80::1%eth0"}, "fe80::/64"},
		{"IPv4-mapped", trusting, proxy, []string{"::ffff:198.51.100.7"}, client},
		{"NAT64", trusting, "[64:ff9b::10.0.0.1]:1", []string{"64:ff9b::198.51.100.7"}, client},
		{"IPv4-mapped in hexadecimal", trusting, proxy, []string{"::ffff:c633:6407"}, client},
		{"Unix socket", trusting, "@", []string{client}, client},
		{"named Unix socket", trusting, "/run/proxy", []string{client}, client},
		{"no header", trusting, proxy, nil, "10.0.0.1"},
		{"all trusted", trusting, proxy, []string{"10.0.0.9, 10.0.0.2"}, "10.0.0.9"},
		{"nothing trusted", clientip.XForwardedFor(), client + ":1", []string{spoof}, client},

		{"peer is not a proxy", trusting, client + ":1", []string{spoof}, client},
		{"peer is not a proxy and says it is behind one", trusting, client + ":1",
			[]string{spoof + ", 10.0.0.2"}, client},
		{"peer unreadable", trusting, "example.com:1", []string{spoof}, "unknown"},
		{"no peer", trusting, "", []string{spoof}, "unknown"},
		{"empty element", trusting, proxy, []string{spoof + ", , 10.0.0.2"}, "unknown"},
		{"empty last element", trusting, proxy, []string{spoof + ","}, "unknown"},
		{"empty line", trusting, proxy, []string{spoof, ""}, "unknown"},
		{"unknown", trusting, proxy, []string{spoof + ", unknown"}, "unknown"},
		{"garbage", trusting, proxy, []string{spoof + ", example.com"}, "unknown"},
		{"garbage left of the client", trusting, proxy, []string{"<script>, " + client}, client},
		{"nginx on a Unix socket", trusting, "@", []string{spoof + ", unix:"}, "unknown"},
		{"octal", trusting, proxy, []string{"198.051.100.007"}, "unknown"},
		{"short IPv4", trusting, proxy, []string{"127.1"}, "unknown"},
		{"a number", trusting, proxy, []string{"3325256711"}, "unknown"},
		{"prefix", trusting, proxy, []string{"198.51.100.0/24"}, "unknown"},
		{"quoted", trusting, proxy, []string{`"198.51.100.7"`}, "unknown"},
		{"IPv4 in brackets", trusting, proxy, []string{"[198.51.100.7]"}, "unknown"},
		{"open bracket", trusting, proxy, []string{"[2001:db8::1"}, "unknown"},
		{"text after brackets", trusting, proxy, []string{"[2001:db8::1]x"}, "unknown"},
		{"bad port", trusting, proxy, []string{client + ":http"}, "unknown"},
		{"no port after colon", trusting, proxy, []string{client + ":"}, "unknown"},
		{"semicolons", trusting, proxy, []string{spoof + "; " + client}, "unknown"},
		{"long zone", trusting, proxy, []string{"fe80::1%" + string(make([]byte, 200))}, "unknown"},

		// Spoofs that other packages accept, by where they are described.
		{"GHSA-3fxj-6jh8-hvhx: left-most address of X-Forwarded-For", trusting, proxy,
			[]string{spoof + ", " + client}, client},
		{"GHSA-9g5q-2w5x-hmxf: left-most address becomes RemoteAddr", trusting, proxy,
			[]string{"127.0.0.1, " + client}, client},
		{"GHSA-rjr7-jggh-pgcp: header of a peer that is not a proxy", trusting, client + ":1",
			[]string{"127.0.0.1"}, client},
		{"httprate#53: another address with each request", trusting, proxy,
			[]string{"203.0.113.1, 203.0.113.2, " + client}, client},
		{"perils: first of several lines", trusting, proxy, []string{spoof, client}, client},
		{"perils: left-most that is not private", trusting, proxy,
			[]string{"8.8.8.8, 192.168.1.1, " + client}, client},
		{"perils: trusted address among the spoofed", trusting, proxy,
			[]string{spoof + ", 10.0.0.2, " + client}, client},
		{"perils: garbage is not passed over", trusting, proxy,
			[]string{spoof + ", nonsense, 10.0.0.2"}, "unknown"},
		{"mapped address is not another one", trusting, proxy,
			[]string{spoof + ", ::ffff:198.51.100.7"}, client},
		{"zone is not another address", trusting, proxy,
			[]string{"2001:db8::1%1"}, "2001:db8::/64"},

		{"first", first, proxy, []string{spoof + ", " + client}, client},
		{"first of two lines", first, proxy, []string{spoof, client}, client},
		{"second", second, proxy, []string{spoof + ", " + client + ", 192.0.2.1"}, client},
		{"second over lines", second, proxy, []string{spoof + ", " + client, "192.0.2.1"}, client},
		{"too few", second, proxy, []string{spoof}, "unknown"},
		{"first of none", first, proxy, nil, "unknown"},
		{"second is garbage", second, proxy, []string{spoof + ", x, 192.0.2.1"}, "unknown"},
		{"garbage right of the second", second, proxy, []string{client + ", x"}, client},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(tt.peer, "X-Forwarded-For", tt.lines...)
			r.Header.Set("X-Real-IP", spoof)
			r.Header.Set("True-Client-IP", spoof)
			r.Header.Set("Forwarded", "for="+spoof)
			checkKey(t, tt.source, r, tt.want)
		})
	}
}

func TestForwarded(t *testing.T) {
	trusting := clientip.Forwarded(prefixes("10.0.0.0/8")...)
	second := clientip.ForwardedAt(2)
	for _, tt := range []struct {
		name   string
		source clientip.Source
		peer   string
		lines  []string
		want   string
	}{
		{"token", trusting, proxy, []string{"for=198.51.100.7"}, client},
		{"upper case", trusting, proxy, []string{"FOR=198.51.100.7"}, client},
		{"quoted", trusting, proxy, []string{`for="198.51.100.7"`}, client},
		{"with port", trusting, proxy, []string{`for="198.51.100.7:80"`}, client},
		{"with obfuscated port", trusting, proxy, []string{`for="198.51.100.7:_x.1"`}, client},
		{"IPv6", trusting, proxy, []string{`for="[2001:db8:cafe::17]:4711"`},
			"2001:db8:cafe::/64"},
		{"IPv6 without quotes", trusting, proxy, []string{`for=[2001:db8:cafe::17]:4711`},
			"2001:db8:cafe::/64"},
		{"escapes", trusting, proxy, []string{`for="\1\98.51.100.7"`}, client},
		{"other parameters", trusting, proxy,
			[]string{`proto=https; for=198.51.100.7 ;by="10.0.0.1";host="a,b;for=203.0.113.66"`},
			client},
		{"two proxies", trusting, proxy, []string{"for=198.51.100.7, for=10.0.0.2"}, client},
		{"two lines", trusting, proxy, []string{"for=198.51.100.7", "for=10.0.0.2"}, client},
		{"all trusted", trusting, proxy, []string{"for=10.0.0.3"}, "10.0.0.3"},
		{"peer is not a proxy", trusting, client + ":1", []string{"for=203.0.113.66"}, client},
		{"second", second, proxy, []string{"for=1.1.1.1,for=198.51.100.7,for=10.0.0.2"}, client},
		{"too few", second, proxy, []string{"for=203.0.113.66"}, "unknown"},

		{"spoofed left", trusting, proxy, []string{"for=203.0.113.66, for=198.51.100.7"}, client},
		{"spoofed line", trusting, proxy, []string{"for=203.0.113.66", "for=198.51.100.7"}, client},
		{"open quote on the left", trusting, proxy, []string{`for=", for=198.51.100.7`}, client},
		{"open quote before a quoted address", trusting, proxy,
			[]string{`for="203.0.113.66, for="198.51.100.7"`}, client},
		{"open quote and a backslash", trusting, proxy,
			[]string{`for="203.0.113.66\, for="198.51.100.7"`}, client},
		{"open quote in the line before", trusting, proxy, []string{`for="`, `for="198.51.100.7"`},
			client},
		{"escaped quote in another parameter", trusting, proxy,
			[]string{`for=203.0.113.66, for=198.51.100.7;host="a\"b"`}, client},
		{"spoofed in another parameter", trusting, proxy,
			[]string{`for=203.0.113.66, for=198.51.100.7;host="a\", for=203.0.113.66"`}, client},
		{"unknown", trusting, proxy, []string{"for=203.0.113.66, for=unknown"}, "unknown"},
		{"obfuscated", trusting, proxy, []string{"for=203.0.113.66, for=_hidden"}, "unknown"},
		{"obfuscated with port", trusting, proxy, []string{`for="_hidden:80"`}, "unknown"},
		{"no for", trusting, proxy, []string{"for=203.0.113.66, proto=https"}, "unknown"},
		{"two for", trusting, proxy, []string{"for=203.0.113.66;for=198.51.100.7"}, "unknown"},
		{"empty for", trusting, proxy, []string{"for="}, "unknown"},
		{"empty", trusting, proxy, []string{""}, "unknown"},
		{"no parameter", trusting, proxy, []string{"198.51.100.7"}, "unknown"},
		{"open quote", trusting, proxy, []string{`for="198.51.100.7`}, "unknown"},
		{"quote in the middle", trusting, proxy, []string{`for=198."51".100.7`}, "unknown"},
		{"text after the quotes", trusting, proxy, []string{`for="198.51.100.7"x`}, "unknown"},
		{"space in the value", trusting, proxy, []string{`for=198.51.100.7 x`}, "unknown"},
		{"empty parameter", trusting, proxy, []string{`for=198.51.100.7;`}, "unknown"},
		{"bad obfuscated port", trusting, proxy, []string{`for="198.51.100.7:_"`}, "unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(tt.peer, "Forwarded", tt.lines...)
			r.Header.Set("X-Forwarded-For", spoof)
			checkKey(t, tt.source, r, tt.want)
		})
	}
}

func TestHeader(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"one", []string{client}, client},
		{"IPv6", []string{"2001:db8::1"}, "2001:db8::/64"},
		{"last line", []string{spoof, client}, client},
		{"merged lines", []string{spoof + ", " + client}, client},
		{"none", nil, "unknown"},
		{"garbage", []string{"x"}, "unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(proxy, "CF-Connecting-IP", tt.lines...)
			r.Header.Set("X-Forwarded-For", spoof)
			trusting := clientip.Header("cf-connecting-ip", prefixes("10.0.0.0/8")...)
			everybody := clientip.Header("CF-Connecting-IP", prefixes("0.0.0.0/0", "::/0")...)
			checkKey(t, trusting, r, tt.want)
			checkKey(t, everybody, r, tt.want)
			for peer, key := range map[string]string{
				"198.51.100.9:1": "198.51.100.9", "[2001:db8:9::1]:1": "2001:db8:9::/64",
			} {
				r.RemoteAddr = peer
				checkKey(t, trusting, r, key)
				checkKey(t, clientip.Header("CF-Connecting-IP"), r, key)
				checkKey(t, everybody, r, tt.want)
			}
			r.RemoteAddr = "@" // a Unix socket
			checkKey(t, clientip.Header("CF-Connecting-IP"), r, tt.want)
		})
	}
}

func TestFromContext(t *testing.T) {
	type name struct{}
	get := func(ctx context.Context) string {
		s, _ := ctx.Value(name{}).(string)
		return s
	}
	for addr, want := range map[string]string{
		client:         client,
		"2001:db8::1":  "2001:db8::/64",
		"fe80::1%eth0": "fe80::/64",
		"":             "unknown",
		"x":            "unknown",
	} {
		r := request(proxy, "X-Forwarded-For", spoof)
		r = r.WithContext(context.WithValue(r.Context(), name{}, addr))
		checkKey(t, clientip.FromContext(get), r, want)
	}
}

func TestAddrKey(t *testing.T) {
	for _, tt := range []struct {
		addr netip.Addr
		bits int
		want string
	}{
		{netip.MustParseAddr("192.0.2.1"), 64, "192.0.2.1"},
		{netip.MustParseAddr("::ffff:192.0.2.1"), 64, "192.0.2.1"},
		{netip.MustParseAddr("64:ff9b::192.0.2.1"), 64, "192.0.2.1"},
		{netip.MustParseAddr("2001:db8:1:2:3::1%eth0"), 64, "2001:db8:1:2::/64"},
		{netip.MustParseAddr("2001:db8:1:2:3::1"), 56, "2001:db8:1::/56"},
		{netip.Addr{}, 64, "unknown"},
	} {
		if got := clientip.AddrKey(tt.addr, tt.bits); got != tt.want {
			t.Errorf("%v by /%d: %q, want %q", tt.addr, tt.bits, got, tt.want)
		}
	}
}

// TestTrustedPrefixes compares the search in many prefixes with a check of each prefix.
func TestTrustedPrefixes(t *testing.T) {
	trusted := prefixes("10.0.0.0/8", "10.1.2.0/24", "192.0.2.1/32", "192.0.2.2/31",
		"2001:db8::/32", "2001:db8:1::/48", "fd00::/8", "::1/128", "128.0.0.0/1")
	mapped := netip.MustParsePrefix("::ffff:172.16.0.0/108")
	source := clientip.XForwardedFor(append(trusted, mapped)...)
	trusted = append(trusted, netip.MustParsePrefix("172.16.0.0/12"))
	for _, text := range []string{"9.255.255.255", "10.0.0.0", "10.1.2.3", "10.255.255.255",
		"11.0.0.0", "127.255.255.255", "128.0.0.0", "255.255.255.255", "0.0.0.0", "172.15.9.9",
		"172.16.0.0", "172.31.255.255", "::", "::1", "::2", "2001:db7::", "2001:db8::",
		"2001:db8:1::5", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::", "fcff::",
		"fd00::1", "fdff:ffff::", "fe00::", "1.2.3.4"} {
		addr := netip.MustParseAddr(text)
		want := addr
		for _, p := range trusted {
			if p.Contains(addr) {
				want = netip.MustParseAddr(spoof)
			}
		}
		r := request(netip.AddrPortFrom(addr, 1).String(), "X-Forwarded-For", spoof)
		if got := source.Addr(r); got != want {
			t.Errorf("peer %v: client %v, want %v", addr, got, want)
		}
	}
}

func TestPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"/0":                func() { clientip.Source{}.WithIPv6Prefix(0) },
		"IPv4 /0":           func() { clientip.Source{}.WithIPv4Prefix(0) },
		"IPv4 /33":          func() { clientip.Source{}.WithIPv4Prefix(33) },
		"everybody, NAT64":  func() { clientip.Forwarded(prefixes("64:ff9b::/96")...) },
		"wider than NAT64":  func() { clientip.Header("X", prefixes("64:ff9b::/64")...) },
		"header of no one":  func() { clientip.Header("X", netip.Prefix{}) },
		"/129":              func() { clientip.Source{}.WithIPv6Prefix(129) },
		"AddrKey /0":        func() { clientip.AddrKey(netip.Addr{}, 0) },
		"zero prefix":       func() { clientip.XForwardedFor(netip.Prefix{}) },
		"everybody":         func() { clientip.XForwardedFor(prefixes("0.0.0.0/0")...) },
		"everybody on IPv6": func() { clientip.Forwarded(prefixes("::/0")...) },
		"everybody, mapped": func() { clientip.Forwarded(prefixes("::ffff:0.0.0.0/96")...) },
		"0th":               func() { clientip.XForwardedForAt(0) },
		"-1st":              func() { clientip.ForwardedAt(-1) },
		"no header":         func() { clientip.Header("") },
		"Forwarded":         func() { clientip.Header("forwarded") },
		"no function":       func() { clientip.FromContext(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// TestUnixSocketWithoutName: on systems such as macOS and FreeBSD, RemoteAddr is empty for a peer
// on a Unix socket without a name. The address of the listener then shows that it is a Unix socket.
func TestUnixSocketWithoutName(t *testing.T) {
	source := clientip.XForwardedFor(netip.MustParsePrefix("10.0.0.0/8"))
	for _, tt := range []struct {
		local net.Addr
		want  string
	}{
		{&net.UnixAddr{Name: "/run/server", Net: "unix"}, "198.51.100.7"},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80}, clientip.Unknown},
		{nil, clientip.Unknown},
	} {
		r := httptest.NewRequestWithContext(
			context.WithValue(t.Context(), http.LocalAddrContextKey, tt.local), "GET", "/", nil)
		r.RemoteAddr = ""
		r.Header.Set("X-Forwarded-For", "203.0.113.66, 198.51.100.7")
		if got, _ := source.Key(r); got != tt.want {
			t.Errorf("listening on %v: %s, want %s", tt.local, got, tt.want)
		}
	}
}
