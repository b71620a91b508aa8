package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/truewindow/ratelimit/httplimit/problem"
)

// MaxBody is the largest size of a request's body in bytes.
const MaxBody = 64 << 10

// A field reads the value of a field of a JSON object.
type field func(*json.Decoder) *problem.Problem

// fields has the reader of each field that an object may have.
type fields map[string]field

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem.Problem) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		p := invalid("The body is larger than 64 KiB.")
		p.Status = http.StatusRequestEntityTooLarge
		return nil, p
	}
	if err != nil {
		return nil, invalid("The body could not be read.")
	}
	return body, nil
}

// invalid is the answer to a request of the wrong form.
func invalid(detail string) *problem.Problem {
	return &problem.Problem{
		Type: problemDocs + "invalid-request", Status: http.StatusBadRequest, Detail: detail,
	}
}

var (
	badKey  = invalid(`"key" must be a string of Unicode text, not empty and without U+FFFD.`)
	notJSON = invalid("The body is not JSON.")
	trailer = invalid("The body has more data after the JSON object.")

	tooManyClaims = invalid(fmt.Sprintf("There are more than %d claims.", maxClaims))
)

// parse reads one JSON object and nothing else.
func (f fields) parse(body []byte) *problem.Problem {
	dec := json.NewDecoder(bytes.NewReader(body))
	if p := f.decode(dec); p != nil {
		return p
	}
	if _, err := dec.Token(); err != io.EOF {
		return trailer
	}
	return nil
}

// decode reads one JSON object. It is strict: json.Unmarshal would accept a field twice, its name
// in any case, and null for any value.
func (f fields) decode(dec *json.Decoder) *problem.Problem {
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return f.wrong()
	}
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return f.wrong()
		}
		name, _ := tok.(string)
		read, known := f[name]
		switch {
		case !known:
			return f.unknown()
		case seen[name]:
			return invalid(fmt.Sprintf("%q is given twice.", name))
		}
		seen[name] = true
		if p := read(dec); p != nil {
			return p
		}
	}
	if _, err := dec.Token(); err != nil {
		return f.wrong()
	}
	return nil
}

// unknown does not name the field, which may be a user's key in the wrong place.
func (f fields) unknown() *problem.Problem {
	return invalid("An object has an unknown field; the fields are " + f.names() + ".")
}

func (f fields) wrong() *problem.Problem {
	return invalid("The body is not JSON, or lacks an object where one with the fields " +
		f.names() + " is expected.")
}

// names returns the names of the fields, quoted.
func (f fields) names() string {
	var names []string
	for name := range f {
		names = append(names, fmt.Sprintf("%q", name))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// A rule says which values a field may have: the detail of the answer to others.
type rule func() string

// text is a rule that is known already.
func text(s string) rule { return func() string { return s } }

// value returns a field that is read into dst. The rule is the answer to null, and to a value that
// is of another type or too large for dst.
func value[T any](dst **T, r rule) field {
	return func(dec *json.Decoder) *problem.Problem {
		err := dec.Decode(dst)
		if mistyped := (*json.UnmarshalTypeError)(nil); errors.As(err, &mistyped) {
			return invalid(r())
		}
		if err != nil {
			return notJSON
		}
		if *dst == nil {
			return invalid(r())
		}
		return nil
	}
}

// integer returns a field of an integer that the caller checks to be from low to high.
func integer(dst **int64, name string, low, high int64) field {
	return value(dst, func() string { return integerRule(name, low, high) })
}

func integerRule(name string, low, high int64) string {
	return fmt.Sprintf("%q must be an integer from %d to %d, in digits only.", name, low, high)
}

// list returns a field that has each element of an array read by element. The rule is the answer to
// a value of another type.
func list(r rule, element field) field {
	return func(dec *json.Decoder) *problem.Problem {
		if tok, err := dec.Token(); err != nil {
			return notJSON
		} else if tok != json.Delim('[') {
			return invalid(r())
		}
		for dec.More() {
			if p := element(dec); p != nil {
				return p
			}
		}
		if _, err := dec.Token(); err != nil {
			return notJSON
		}
		return nil
	}
}

// checkKey reports a key that is missing, too long or not Unicode text. The decoder replaces
// invalid UTF-8 by U+FFFD: keys that differ only there would share a limit.
func checkKey(key *string) *problem.Problem {
	switch {
	case key == nil, *key == "", strings.ContainsRune(*key, utf8.RuneError):
		return badKey
	case len(*key) > maxKey:
		return invalid(fmt.Sprintf(`"key" is longer than %d bytes.`, maxKey))
	}
	return nil
}
