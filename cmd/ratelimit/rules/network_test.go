package rules

import (
	"strconv"
	"strings"
	"testing"
)

// TestNetworks: which values of a client are networks, and what is wrong with others that are meant
// as one. Of by, which has exact values, only a client of IPv6 is right.
func TestNetworks(t *testing.T) {
	const exact = "by has exact values: write an exception for a network"
	for value, want := range map[string]struct{ when, by string }{
		"10.0.0.0/8": {"", exact}, "192.0.2.0/25": {"", exact}, "10.1.2.3/32": {"", exact},
		"0.0.0.0/0": {"", exact}, "::/0": {"", exact}, "2001:DB8:7::/48": {"", exact},
		"2001:db8::7/128": {"", exact}, "2001:DB8::/64": {"", exact},
		"::ffff:10.0.0.0/104": {"", exact},

		"10.1.2.3/8":              {"write the network as 10.0.0.0/8", exact},
		"10.1.16.1/20":            {"write the network as 10.1.16.0/20", exact},
		"[2001:db8::]/32":         {"write the network as 2001:db8::/32", exact},
		"2001:db8::7/64":          {"write the network as 2001:db8::/64", exact},
		"fe80::1%eth0/64":         {"write the network as fe80::/64", exact},
		"10.0.0.0/33":             {"a network is such as", exact},
		"10/8":                    {"a network is such as", exact},
		"10.0.0.0/*":              {"a network is such as", ""},
		"10.0.0.0/255.0.0.0":      {"a network is such as", exact},
		"10.0.0.0/8,192.0.2.0/24": {"a network is such as", exact},

		"2001:db8::/64": {}, "2001:db8::/*": {}, "acme/web": {}, "/": {}, "10.1.2.3": {}, "*": {},
	} {
		for _, tt := range []struct{ limit, want string }{
			{"max: 1/m, when: {client: '" + value + "'}", want.when},
			{"max: 1/m, when: {remote_address: '" + value + "'}", want.when},
			{"max: 1/m, except: [{when: {client: '" + value + "', a: b}, max: 2/m}]", want.when},
			{"max: 1/m, by: {'" + value + "': 2/m, entry: client}", want.by},
			{"max: 1/m, when: {peer: '" + value + "'}", ""},
		} {
			if strings.Contains(value, "*") && strings.Contains(tt.limit, "by:") {
				continue // another problem
			}
			text := "limits: [{name: n, " + tt.limit + "}]\n"
			var lines []string
			if tt.want != "" {
				at := strings.Index(text, "'") + 1
				lines = []string{"1:" + strconv.Itoa(at) + ": " + tt.want}
			}
			compareLines(t, problemsOf(t, text), lines)
		}
	}
}

// TestNetworksMatch: addresses match networks however they are written.
func TestNetworksMatch(t *testing.T) {
	for _, tt := range []struct {
		network, client string
		want            bool
	}{
		{"10.0.0.0/8", "10.255.255.255", true}, {"10.0.0.0/8", "11.0.0.0", false},
		{"10.0.0.0/8", "9.255.255.255", false}, {"10.0.0.0/8", "::ffff:10.1.2.3", true},
		{"10.0.0.0/8", "::10.1.2.3", false}, {"0.0.0.0/0", "2001:db8::/64", false},
		{"::/0", "10.1.2.3", false}, {"::ffff:10.0.0.0/104", "10.1.2.3", true},
		{"2001:db8::/32", "2001:db8:1::/64", true}, {"2001:db8::/32", "2001:db8:1::7", true},
		{"2001:db8::/32", "2001:db9::/64", false}, {"2001:db8::/64", "2001:db8::/64", true},
		{"2001:db8::/96", "2001:db8::/64", false}, {"2001:db8::/96", "2001:db8::7", true},
		{"fe80::/10", "fe80::1%eth0", true}, {"10.0.0.0/8", "10.0.0.0/7", false},
		{"10.0.0.0/8", "10.1.2.3:80", false}, {"10.0.0.0/8", "10.1.2", false},
		{"10.0.0.0/8", "010.1.2.3", false}, {"10.0.0.0/8", "", false},
		{"10.0.0.0/8", "10.0.0.0/8x", false}, {"0.0.0.0/0", "client", false},
	} {
		e, err := elementOf(tt.network, clientEntry)
		if err != nil {
			t.Fatal(err)
		}
		l := &Limit{Name: "n", Rate: Rate{Unlimited: true},
			When: []Condition{e.condition(clientEntry)}}
		s := compile(t, []*Limit{l}, nil)
		d := entries(clientEntry, tt.client)
		if got := len(s.Match(nil, "", d)) == 1; got != tt.want {
			t.Errorf("%s in %s: %v, want %v", tt.client, tt.network, got, tt.want)
		}
		if got := l.Mismatch("", d) == ""; got != tt.want {
			t.Errorf("the mismatch of %s in %s: %v, want %v", tt.client, tt.network, got, tt.want)
		}
	}
}
