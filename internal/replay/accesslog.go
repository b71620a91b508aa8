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
	numAccessFields
)

var fieldNames = [numAccessFields]string{
	"client", "user", "method", "path", "status", "bytes", "referer", "agent",
}

// accessFields are the fields of a line, as they are written in it: escaped characters stay
// escaped.
type accessFields struct {
	time   []byte // without brackets
	fields [numAccessFields][]byte
}

// split finds the fields of a line. The last two are those of the combined format only:
//
//	client ident user [time] "method path protocol" status bytes "referer" "agent"
//
// The path has no query. Fields that follow are ignored: some servers append their own.
func (f *accessFields) split(line []byte, combined bool) error {
	client, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(client) == 0 {
		return errSyntax
	}
	f.fields[fieldClient] = client
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // the identity (RFC 1413), which is not used
	// a user may have spaces
	if f.fields[fieldUser], rest, ok = bytes.Cut(rest, []byte(" [")); !ok {
		return errSyntax
	}
	if f.time, rest, ok = bytes.Cut(rest, []byte("] ")); !ok {
		return errSyntax
	}
	request, rest, ok := quoted(rest)
	if !ok {
		return errSyntax
	}
	f.splitRequest(request)
	f.fields[fieldStatus], rest, _ = bytes.Cut(rest, []byte(" "))
	f.fields[fieldBytes], rest, _ = bytes.Cut(rest, []byte(" "))
	if !isNumber(f.fields[fieldStatus]) || !isNumber(f.fields[fieldBytes]) {
		return errSyntax
	}
	if !combined {
		return nil
	}
	if f.fields[fieldReferer], rest, ok = quoted(rest); !ok {
		return errSyntax
	}
	if f.fields[fieldAgent], _, ok = quoted(rest); !ok {
		return errSyntax
	}
	return nil
}

// splitRequest finds the method and the path. A request that is not HTTP has no path.
func (f *accessFields) splitRequest(request []byte) {
	method, target, _ := bytes.Cut(request, []byte(" "))
	target, _, _ = bytes.Cut(target, []byte(" "))
	path, _, _ := bytes.Cut(target, []byte("?"))
	f.fields[fieldMethod], f.fields[fieldPath] = method, path
}

// quoted returns the text between quotation marks at the start of b, and what follows the space
// after them. A quotation mark after a backslash is part of the text.
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
		if rest[0] != ' ' {
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
	combined   bool // whether the key or the units are a field that only the combined format has
	key, units int  // fields; units is -1 if each line takes one unit
	line       accessFields
	clock      clock
}

func newAccessParser(key, units string) *accessParser {
	p := &accessParser{
		key:   slices.Index(fieldNames[:], key),
		units: slices.Index(fieldNames[:], units),
	}
	p.combined = max(p.key, p.units) >= commonFields
	return p
}

func (p *accessParser) parse(line []byte, a *arrival) (err error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return errBlank
	}
	if err := p.line.split(line, p.combined); err != nil {
		return err
	}
	var ok bool
	if a.at, ok = p.clock.access(p.line.time); !ok {
		return errBadTime
	}
	a.key = p.line.fields[p.key]
	if len(a.key) == 0 || len(a.key) == 1 && a.key[0] == '-' {
		return errNoKey
	}
	a.units = 1
	if p.units >= 0 {
		a.units, err = parseUnits(p.line.fields[p.units])
	}
	return err
}
