package replay

import (
	"bytes"
	"encoding/json"
	"strings"
)

// The fields of an object that are read.
const (
	jsonKey = iota
	jsonTime
	jsonUnits
	numJSONFields
)

// jsonPaths has the rest of the path of each field, or "" for a field that is not searched for.
type jsonPaths [numJSONFields]string

// jsonParser reads JSON lines. It reads the fields that it needs and skips all others, without
// checking that these are valid JSON.
type jsonParser struct {
	paths jsonPaths
	found [numJSONFields][]byte // values as they are written, or nil
	clock clock

	addresses *addresses
}

func newJSONParser(key, time, units string, a *addresses) *jsonParser {
	return &jsonParser{paths: jsonPaths{key, time, units}, addresses: a}
}

func (p *jsonParser) parse(line []byte, a *arrival) (err error) {
	i := objectIn(line)
	if i == len(line) {
		return errBlank
	}
	p.found = [numJSONFields][]byte{}
	if i = p.object(line, i, &p.paths); i < 0 || afterSpace(line, i) != len(line) {
		return errSyntax
	}
	if a.key, err = p.key(p.found[jsonKey]); err != nil {
		return err
	}
	text, err := jsonText(p.found[jsonTime], errNoTime, errBadTime)
	if err != nil {
		return err
	}
	var ok bool
	if a.at, ok = p.clock.read(text); !ok {
		if a.at, ok = unixTime(text); !ok {
			return errBadTime
		}
	}
	a.units = 1
	if p.paths[jsonUnits] != "" {
		if text, err = jsonText(p.found[jsonUnits], errNoUnits, errBadUnits); err == nil {
			a.units, err = parseUnits(text)
		}
	}
	return err
}

// objectIn returns where the object of a line begins. Words may stand before it, which whatever
// collects logs writes.
func objectIn(line []byte) int {
	i := afterSpace(line, 0)
	if i == len(line) || line[i] == '{' {
		return i
	}
	if j := bytes.IndexByte(line, '{'); j > 0 && (line[j-1] == ' ' || line[j-1] == '\t') {
		return j
	}
	return i
}

// key returns the key in a value. A list, such as the values of a header, counts as one text.
func (p *jsonParser) key(value []byte) ([]byte, error) {
	isList := len(value) > 0 && value[0] == '['
	var text []byte
	if isList {
		var texts []string
		if json.Unmarshal(value, &texts) != nil {
			return nil, errBadKey
		}
		text = []byte(strings.Join(texts, ","))
		isList = len(texts) > 1
	} else {
		var err error
		if text, err = jsonText(value, errNoKey, errBadKey); err != nil {
			return nil, err
		}
	}
	if isMissing(text) {
		return nil, errNoKey
	}
	key, isAddress := p.addresses.key(text)
	if isList && !isAddress {
		return nil, errBadKey
	}
	return key, nil
}

// jsonText returns the text of a string, or the literal of a number or a boolean. null counts as
// missing.
func jsonText(value []byte, missing, wrong error) ([]byte, error) {
	switch {
	case len(value) == 0 || string(value) == "null":
		return nil, missing
	case value[0] == '{' || value[0] == '[':
		return nil, wrong
	case value[0] != '"':
		if !json.Valid(value) {
			return nil, errSyntax
		}
		return value, nil
	case bytes.IndexByte(value, '\\') < 0:
		return value[1 : len(value)-1], nil
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return nil, errSyntax
	}
	return []byte(text), nil
}

// object reads the object that begins at i, and returns the index after it. Like the functions
// below, it returns -1 if this is not JSON.
func (p *jsonParser) object(line []byte, i int, paths *jsonPaths) int {
	if i == len(line) || line[i] != '{' {
		return -1
	}
	i = afterSpace(line, i+1)
	if i < len(line) && line[i] == '}' {
		return i + 1
	}
	for {
		if i = p.member(line, i, paths); i < 0 {
			return -1
		}
		i = afterSpace(line, i)
		if i == len(line) {
			return -1
		}
		switch line[i] {
		case '}':
			return i + 1
		case ',':
			i = afterSpace(line, i+1)
		default:
			return -1
		}
	}
}

// member reads a name and its value. If a name occurs twice, the last value counts.
func (p *jsonParser) member(line []byte, i int, paths *jsonPaths) int {
	start := i
	if i = afterString(line, i); i < 0 {
		return -1
	}
	name := line[start+1 : i-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var err error
		if name, err = jsonText(line[start:i], errSyntax, errSyntax); err != nil {
			return -1
		}
	}
	i = afterSpace(line, i)
	if i == len(line) || line[i] != ':' {
		return -1
	}
	i = afterSpace(line, i+1)

	var inner jsonPaths
	var matches [numJSONFields]bool
	nested := false
	for f, path := range paths {
		if len(path) == 0 || len(name) > len(path) || string(name) != path[:len(name)] {
			continue
		}
		if len(name) == len(path) {
			matches[f] = true
		} else if path[len(name)] == '.' {
			inner[f], nested = path[len(name)+1:], true
		}
	}
	start = i
	if nested && i < len(line) && line[i] == '{' {
		i = p.object(line, i, &inner)
	} else {
		i = afterValue(line, i)
	}
	if i < 0 {
		return -1
	}
	for f, match := range matches {
		if match {
			p.found[f] = line[start:i]
		}
	}
	return i
}

func afterSpace(line []byte, i int) int {
	for i < len(line) && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
		i++
	}
	return i
}

func afterString(line []byte, i int) int {
	if i == len(line) || line[i] != '"' {
		return -1
	}
	end := closing(line[i:])
	if end < 0 {
		return -1
	}
	return i + end + 1
}

// afterValue returns the index after the value that begins at i.
func afterValue(line []byte, i int) int {
	if i == len(line) {
		return -1
	}
	switch line[i] {
	case '"':
		return afterString(line, i)
	case '{', '[':
		return afterNested(line, i)
	}
	start := i
	for i < len(line) && !endsLiteral(line[i]) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func endsLiteral(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\r', '"', '{', '[', ':':
		return true
	}
	return false
}

// afterNested returns the index after an object or an array.
func afterNested(line []byte, i int) int {
	depth := 0
	for i < len(line) {
		switch line[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			if i = afterString(line, i); i < 0 {
				return -1
			}
			continue
		}
		i++
	}
	return -1
}
