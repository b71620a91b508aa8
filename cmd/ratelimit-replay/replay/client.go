package replay

import (
	"bytes"
	"net/http"
	"net/netip"
	"slices"

	"github.com/truewindow/ratelimit/clientip"
)

// addresses counts addresses as package clientip does. Of a list, such as that of X-Forwarded-For,
// the right-most address that is not a trusted proxy's counts.
type addresses struct {
	source  clientip.Source
	request *http.Request
	values  []string
}

func newAddresses(trusted []netip.Prefix) *addresses {
	values := []string{""}
	return &addresses{clientip.XForwardedFor(trusted...), &http.Request{
		RemoteAddr: "@", // a Unix socket, which is always trusted
		Header:     http.Header{"X-Forwarded-For": values},
	}, values}
}

// key returns the key of an address or a list of addresses, or text if it is neither.
func (a *addresses) key(text []byte) (key []byte, isAddress bool) {
	switch {
	case isIPv4(text): // which has one spelling
		return text, true
	case !endsLikeAddress(text):
		return text, false
	}
	a.values[0] = string(text)
	if name, _ := a.source.Key(a.request); name != clientip.Unknown {
		return []byte(name), true
	}
	return text, false
}

// endsLikeAddress rules out most texts that are neither an address nor a list of addresses.
func endsLikeAddress(text []byte) bool {
	last := text[bytes.LastIndexByte(text, ',')+1:]
	last, _, _ = bytes.Cut(last, []byte("%")) // a zone
	return bytes.ContainsAny(last, ".:") &&
		len(bytes.Trim(last, " \t0123456789abcdefABCDEF.:[]")) == 0
}

func isIPv4(b []byte) bool {
	for i := range 4 {
		n := countDigits(b)
		if n == 0 || n > 3 || n > 1 && b[0] == '0' {
			return false
		}
		if octet, _ := digits(b[:n]); octet > 255 {
			return false
		}
		if b = b[n:]; i < 3 {
			if len(b) == 0 || b[0] != '.' {
				return false
			}
			b = b[1:]
		}
	}
	return len(b) == 0
}

// isMissing reports whether a field has no value: servers write a hyphen for that.
func isMissing(b []byte) bool { return len(b) == 0 || len(b) == 1 && b[0] == '-' }

// splitClient finds the client and the user in what stands before the time of a line:
//
//	prefix client ident user
//
// The identity (RFC 1413) is a hyphen, unless a server asks for it. The prefix is what collects
// logs, such as a container's name or the header of syslog. So the client is the first word that a
// hyphen follows: nothing behind it counts, because clients choose the user. Words that end in a
// comma belong to the word behind them, as in X-Forwarded-For. LiteSpeed writes quotation marks
// around the whole line, the client or the user.
func (f *accessFields) splitClient(b []byte) error {
	b = bytes.TrimRight(b, " ")
	if bytes.HasPrefix(b, []byte("<")) {
		b = afterHeader(b)
	}
	f.prefixed = false
	listed := -1 // where a list begins
	for i := 0; i < len(b); {
		n := bytes.IndexByte(b[i:], ' ')
		if n < 0 {
			break
		}
		word, rest := b[i:i+n], b[i+n+1:]
		switch {
		case n > 0 && word[n-1] == ',':
			if listed < 0 {
				listed = i
			}
		case n > 0 && rest[0] == '-' && (len(rest) == 1 || rest[1] == ' ') &&
			!isMissing(unquoted(word)):
			if listed >= 0 {
				i, word = listed, b[listed:i+n]
			}
			if tab := bytes.LastIndexByte(word, '\t') + 1; tab > 0 {
				i, word = i+tab, word[tab:]
			}
			f.prefixed = i > 0
			f.fields[fieldClient] = unquoted(word)
			f.fields[fieldUser] = unquoted(rest[min(len(rest), 2):])
			return nil
		default:
			listed = -1
		}
		i += n + 1
	}
	words := bytes.SplitN(b, []byte(" "), 4)
	if len(words) != 3 {
		return errNoClient
	}
	f.fields[fieldClient], f.fields[fieldUser] = unquoted(words[0]), unquoted(words[2])
	return nil
}

// unquoted returns b without a quotation mark before it and one behind it.
func unquoted(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimPrefix(b, []byte(`"`)), []byte(`"`))
}

// afterHeader returns what follows the header of syslog, of which the form of RFC 5424 has hyphens
// for missing values. The form of RFC 3164 has none.
func afterHeader(b []byte) []byte {
	priority, rest, ok := bytes.Cut(b, []byte(">1 "))
	if !ok || len(priority) > len("<191") {
		return b
	}
	for range 6 { // time, host, application, process, message, data
		_, rest, _ = bytes.Cut(rest, []byte(" "))
	}
	return rest
}

// client checks the client of a line, which may be a name if the server looked up its address, and
// makes it the key unless that is the user.
func (p *accessParser) client(a *arrival) error {
	key, isAddress := p.addresses.key(p.line.fields[fieldClient])
	if !isAddress && !p.isName(key) {
		return errNoAddress
	}
	if p.key == fieldClient {
		a.key = key
	}
	return nil
}

// isName reports whether a client that is not an address can be the name of a host. After a prefix
// and before an address it cannot: such a word is a part of the prefix.
func (p *accessParser) isName(client []byte) bool {
	user, _, _ := bytes.Cut(p.line.fields[fieldUser], []byte(" "))
	if _, isAddress := p.addresses.key(user); isAddress || p.line.prefixed {
		return false
	}
	return p.key == fieldUser || isHostName(client)
}

// isHostName reports whether b looks like a name with a domain, or is localhost.
func isHostName(b []byte) bool {
	const allowed = ".-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if string(b) == "localhost" {
		return true
	}
	return bytes.IndexByte(b, '.') > 0 && len(bytes.Trim(b, allowed)) == 0 &&
		slices.ContainsFunc(b, func(c byte) bool { return c > '9' && c != '_' })
}
