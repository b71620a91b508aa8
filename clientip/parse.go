package clientip

import (
	"net/netip"
	"strconv"
	"strings"
)

// maxText is the length of the longest text that is read as an address. Zones have no limit of
// their own.
const maxText = 128

// parse reads an address, with or without brackets, a zone and a port. It returns the zero Addr if
// s is anything else. What it returns is not IPv4-mapped and has no zone.
func parse(s string) netip.Addr {
	if len(s) > maxText {
		return netip.Addr{}
	}
	host, port, hasPort, bracketed := s, "", false, false
	if strings.HasPrefix(s, "[") {
		var after string
		if host, after, bracketed = strings.Cut(s[1:], "]"); !bracketed {
			return netip.Addr{}
		}
		if port, hasPort = strings.CutPrefix(after, ":"); after != "" && !hasPort {
			return netip.Addr{}
		}
	} else if strings.Count(s, ":") == 1 {
		host, port, hasPort = strings.Cut(s, ":")
	}
	if hasPort && !isPort(port) {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || bracketed && addr.Is4() {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// isPort reports whether s is a port: a number, or an obfuscated one of RFC 7239, such as "_a1".
func isPort(s string) bool {
	if hidden, ok := strings.CutPrefix(s, "_"); ok {
		return hidden != "" && strings.Trim(hidden, "._-0123456789"+
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	}
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
