package clientip_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/clientip"
)

// FuzzRemoteAddr: for any RemoteAddr, the key is Unknown, or one address or network in one
// spelling.
func FuzzRemoteAddr(f *testing.F) {
	for _, addr := range []string{"192.0.2.1:1234", "[2001:db8:1:2:3:4:5:6]:1234",
		"[::ffff:192.0.2.1%eth0]:1", "fe80::1%eth0", "@", "", "a:b", "[::]:0"} {
		f.Add(addr, uint8(64))
	}
	f.Fuzz(func(t *testing.T, addr string, bits uint8) {
		length := 1 + int(bits)%128
		source := clientip.Source{}.WithIPv6Prefix(length)
		key, _ := source.Key(&http.Request{RemoteAddr: addr})
		checkForm(t, key, length)
		again := key // a RemoteAddr without a port
		if prefix, _, ok := strings.Cut(key, "/"); ok {
			again = prefix
		}
		if second, _ := source.Key(&http.Request{RemoteAddr: again}); second != key {
			t.Fatalf("%q of %q is %q", again, addr, second)
		}
	})
}

func checkForm(t *testing.T, key string, bits int) {
	t.Helper()
	if len(key) > 43 {
		t.Fatalf("a key of %d bytes", len(key))
	}
	if a, err := netip.ParseAddr(key); err == nil {
		if !a.Is4() || a.String() != key {
			t.Fatalf("%q", key)
		}
	} else if p, err := netip.ParsePrefix(key); key != clientip.Unknown &&
		(err != nil || p.Masked().String() != key || p.Bits() != bits || p.Addr().Is4In6()) {
		t.Fatalf("%q: %v", key, err)
	}
}

// FuzzHeader: the key is that of the client, whatever the client sends, whether it is in lines of
// its own or in the line to which the proxies append, and in whatever spelling the proxies write
// the client's address. If only an untrusted proxy writes the header, the key still has the right
// form.
func FuzzHeader(f *testing.F) {
	for _, sent := range []string{"", "203.0.113.66", "10.0.0.1, 10.0.0.2", `for="`, `for="\`,
		`for=203.0.113.66;x="`, "unknown, _x,,", "[::1]:80%", `for="[::ffff:10.0.0.9]"`} {
		f.Add(sent, []byte{198, 51, 100, 7}, uint8(0))
		f.Add(sent, []byte("\x20\x01\x0d\xb8\x00\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\x06"),
			uint8(3))
	}
	trusted := prefixes("10.0.0.0/8")
	f.Fuzz(func(t *testing.T, sent string, addr []byte, how uint8) {
		client, ok := netip.AddrFromSlice(addr)
		if !ok || trusted[0].Contains(client.Unmap()) {
			client = netip.MustParseAddr("198.51.100.7")
		}
		want := clientip.AddrKey(client, 64)
		spelled := spell(client, how)
		for _, tt := range []struct {
			header, own, next string
			trusting, second  clientip.Source
		}{
			{"X-Forwarded-For", spelled, "10.0.0.2",
				clientip.XForwardedFor(trusted...), clientip.XForwardedForAt(2)},
			{"Forwarded", `for="` + spelled + `"`, "for=10.0.0.2;proto=http",
				clientip.Forwarded(trusted...), clientip.ForwardedAt(2)},
		} {
			for _, lines := range [][]string{
				{sent, tt.own + "," + tt.next},
				{sent, tt.own, tt.next},
				{sent + ", " + tt.own + ", " + tt.next},
			} {
				r := &http.Request{RemoteAddr: "10.0.0.1:1",
					Header: http.Header{tt.header: lines}}
				for _, source := range []clientip.Source{tt.trusting, tt.second} {
					if key, err := source.Key(r); key != want || err != nil {
						t.Fatalf("%q: %q, %v; want %q", lines, key, err, want)
					}
				}
			}
			for _, source := range []clientip.Source{tt.trusting, tt.second} {
				r := &http.Request{RemoteAddr: "10.0.0.1:1",
					Header: http.Header{tt.header: {sent}}}
				key, _ := source.Key(r)
				checkForm(t, key, 64)
			}
		}
	})
}

// spell returns one of the spellings of an address.
func spell(addr netip.Addr, how uint8) string {
	s := addr.String()
	if how&1 != 0 {
		s = addr.StringExpanded()
	}
	if how&2 != 0 && addr.Is4() {
		s = "::ffff:" + addr.String()
	}
	switch is6 := strings.Contains(s, ":"); {
	case how&4 != 0 && is6:
		return "[" + s + "]:80"
	case how&8 != 0 && is6:
		return "[" + s + "%eth0]"
	case how&4 != 0:
		return s + ":80"
	}
	return s
}
