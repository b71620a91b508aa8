package clientip_test

import (
	"net/netip"
	"testing"

	"github.com/truewindow/ratelimit/clientip"
)

func BenchmarkKey(b *testing.B) {
	var many []netip.Prefix
	for i := range 10_000 {
		addr := netip.AddrFrom4([4]byte{20, byte(i >> 7), byte(i << 1), 0})
		many = append(many, netip.PrefixFrom(addr, 24))
	}
	one := prefixes("10.0.0.0/8")
	for _, bm := range []struct {
		name   string
		source clientip.Source
		peer   string
		header string
		line   string
	}{
		{"RemoteAddr IPv4", clientip.Source{}, "192.0.2.1:1234", "", ""},
		{"RemoteAddr IPv6", clientip.Source{}, "[2001:db8::1]:1234", "", ""},
		{"XForwardedFor", clientip.XForwardedFor(one...), "10.0.0.1:1", "X-Forwarded-For",
			"203.0.113.66, 198.51.100.7, 10.0.0.2"},
		{"XForwardedFor of 10,000 prefixes", clientip.XForwardedFor(append(many, one...)...),
			"10.0.0.1:1", "X-Forwarded-For", "203.0.113.66, 198.51.100.7, 20.9.2.2"},
		{"Forwarded", clientip.Forwarded(one...), "10.0.0.1:1", "Forwarded",
			`for=203.0.113.66, for="198.51.100.7:80";proto=https, for=10.0.0.2`},
	} {
		b.Run(bm.name, func(b *testing.B) {
			r := request(bm.peer, bm.header, bm.line)
			b.ReportAllocs()
			for b.Loop() {
				if key, _ := bm.source.Key(r); key == clientip.Unknown {
					b.Fatal("no key")
				}
			}
		})
	}
}
