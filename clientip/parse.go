package clientip

import (
	"math"
	"net/netip"
	"strings"
)

// maxText is the length in bytes of the longest text that is read as an address, because zones may
// have any length.
const maxText = 128

// parse reads an address, with or without brackets, a zone and a port. It returns the zero Addr if
// s is anything else. What it returns is plain.
func parse(s string) netip.Addr {
	addr, _ := split(s)
	return plain(addr)
}

// nat64 is the well-known prefix of RFC 6052, before an IPv4 address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// plain returns addr without a zone, and the IPv4 address that it stands for, if any.
func plain(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

// split returns the address in s, as [netip.ParseAddr] reads it, and its text.
func split(s string) (addr netip.Addr, host string) {
	if len(s) > maxText {
		return netip.Addr{}, ""
	}
	host, port, hasPort, bracketed := s, "", false, false
	if strings.HasPrefix(s, "[") {
		var after string
		if host, after, bracketed = strings.Cut(s[1:], "]"); !bracketed {
			return netip.Addr{}, ""
		}
		if port, hasPort = strings.CutPrefix(after, ":"); after != "" && !hasPort {
			return netip.Addr{}, ""
		}
	} else if strings.Count(s, ":") == 1 {
		host, port, hasPort = strings.Cut(s, ":")
	}
	if hasPort && !isPort(port) {
		return netip.Addr{}, ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || bracketed && addr.Is4() {
		return netip.Addr{}, ""
	}
	return addr, host
}

// isPort reports whether s is a port: a number, or an obfuscated one of RFC 7239, such as "_a1".
func isPort(s string) bool {
	if hidden, ok := strings.CutPrefix(s, "_"); ok {
		return hidden != "" && strings.Trim(hidden, "._-0123456789"+
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	}
	port := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		if port = 10*port + int(s[i]-'0'); port > math.MaxUint16 {
			return false
		}
	}
	return s != ""
}
