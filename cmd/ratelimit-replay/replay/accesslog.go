package replay

import (
	"bytes"
	"slices"
)

// Fields of an access log, in the order of the names.
const (
	fieldClient = iota
	fieldUser
	fieldMethod
	fieldPath
	fieldStatus
	fieldBytes
	commonFields // the common format has the fields before it
	fieldReferer = iota - 1
	fieldAgent
	fieldForwarded
	numAccessFields
)

var fieldNames = [numAccessFields]string{
	"client", "user", "method", "path", "status", "bytes", "referer", "agent", "forwarded",
}

// accessFields are the fields of a line, as they are written in it: escaped characters stay
// escaped.
type accessFields struct {
	time     []byte // without brackets
	prefixed bool   // whether words stand before the client
	fields   [numAccessFields][]byte
}

// split finds the fields of a line up to the field last. The first three after the bytes are those
// of the combined format and of what nginx calls main:
//
//	client ident user [time] "method path protocol" status bytes "referer" "agent" "forwarded"
//
// The path has no query. Words before the client and fields at the end are ignored: whatever
// collects logs writes the first, and some servers append their own. A user may have spaces and
// brackets, but no quotation mark that is not escaped.
func (f *accessFields) split(line []byte, last int) error {
	start, end := bracketedTime(line)
	if start < 0 {
		return errSyntax
	}
	f.time = line[start:end]
	if err := f.splitClient(line[:start-1]); err != nil {
		return err
	}
	request, rest, ok := quoted(line[end+len("] "):])
	if !ok {
		return errSyntax
	}
	f.splitRequest(request)
	f.fields[fieldStatus], rest, _ = bytes.Cut(rest, []byte(" "))
	f.fields[fieldBytes], rest, ok = bytes.Cut(rest, []byte(" "))
	if !ok { // the line may end with the quotation mark of one around all of it
		f.fields[fieldBytes] = bytes.TrimSuffix(f.fields[fieldBytes], []byte(`"`))
	}
	if !isNumber(f.fields[fieldStatus]) || !isNumber(f.fields[fieldBytes]) {
		return errSyntax
	}
	for field := fieldReferer; field <= last; field++ {
		if f.fields[field], rest, ok = quoted(rest); !ok {
			if field == fieldForwarded {
				return errNoForwarded
			}
			return errSyntax
		}
	}
	return nil
}

// bracketedTime returns where the time begins and ends: between brackets, before a quotation mark.
// It returns -1 if there is none.
func bracketedTime(line []byte) (start, end int) {
	const longest = 40
	for start = 0; ; {
		i := bytes.IndexByte(line[start:], '[')
		if i < 0 {
			return -1, -1
		}
		start += i + 1
		b := line[start:min(len(line), start+longest)]
		if len(b) < len(accessDate) ||
			(b[2] != '/' || b[6] != '/') && (b[4] != '-' || b[7] != '-') {
			continue
		}
		if n := bytes.Index(b, []byte(`] "`)); n > 0 {
			return start, start + n
		}
	}
}

// splitRequest finds the method and the path. A request that is not HTTP has no path.
func (f *accessFields) splitRequest(request []byte) {
	method, target, _ := bytes.Cut(request, []byte(" "))
	target, _, _ = bytes.Cut(target, []byte(" "))
	path, _, _ := bytes.Cut(target, []byte("?"))
	f.fields[fieldMethod], f.fields[fieldPath] = method, path
}

// quoted returns the text between quotation marks at the start of b, and what follows the space
// after them, or the quotation mark that ends a line in quotation marks. A quotation mark after a
// backslash is part of the text.
func quoted(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	end := closing(b)
	if end < 0 {
		return nil, nil, false
	}
	text, rest = b[1:end], b[end+1:]
	if len(rest) > 0 {
		if rest[0] != ' ' && string(rest) != `"` {
			return nil, nil, false
		}
		rest = rest[1:]
	}
	return text, rest, true
}

// closing returns the index of the quotation mark that ends a string, which begins with one, or -1.
func closing(b []byte) int {
	for i := 1; ; i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return -1
		}
		i += j
		backslashes := 0
		for b[i-1-backslashes] == '\\' { // b[0] is a quotation mark
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
	}
}

// isNumber reports whether a field consists of digits, or is the hyphen that stands for no value.
func isNumber(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return len(b) == 1 && c == '-'
		}
	}
	return true
}

// accessParser reads the common and the combined log format.
type accessParser struct {
	key, units int // fields; units is -1 if each line takes one unit
	last       int // the last field that is needed
	line       accessFields
	clock      clock
	addresses  *addresses
}

func newAccessParser(key, units string, a *addresses) *accessParser {
	p := &accessParser{
		key:       slices.Index(fieldNames[:], key),
		units:     slices.Index(fieldNames[:], units),
		addresses: a,
	}
	p.last = max(p.key, p.units)
	return p
}

func (p *accessParser) parse(line []byte, a *arrival) (err error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return errBlank
	}
	if err := p.line.split(line, p.last); err != nil {
		return err
	}
	var ok bool
	if a.at, ok = p.clock.read(p.line.time); !ok {
		return errBadTime
	}
	if a.key = p.line.fields[p.key]; isMissing(a.key) {
		return errNoKey
	}
	switch p.key {
	case fieldClient, fieldUser:
		if err := p.client(a); err != nil {
			return err
		}
	case fieldForwarded:
		if a.key, ok = p.addresses.key(a.key); !ok {
			return errNoAddress
		}
	}
	a.units = 1
	if p.units >= 0 {
		a.units, err = parseUnits(p.line.fields[p.units])
	}
	return err
}
