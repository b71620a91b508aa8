package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/truewindow/ratelimit/internal/problem"
)

// maxBody is the largest size of a request's body in bytes. It also bounds the key.
const maxBody = 64 << 10

// demand is the body of a request: {"key":"user:42","n":1}.
type demand struct {
	key string
	n   int64 // 1 if left out
}

// readDemand reads the body of r, whatever its Content-Type. The problem says what is wrong with
// the body and repeats nothing of it. withN reports whether the body may have an n.
func readDemand(w http.ResponseWriter, r *http.Request, withN bool) (demand, *problem.Problem) {
	body, p := readBody(w, r)
	if p != nil {
		return demand{}, p
	}
	return parseDemand(body, withN)
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem.Problem) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &problem.Problem{
			Status: http.StatusRequestEntityTooLarge,
			Detail: "The body is larger than 64 KiB.",
		}
	}
	if err != nil {
		return nil, badRequest("The body could not be read.")
	}
	return body, nil
}

func badRequest(detail string) *problem.Problem {
	return &problem.Problem{Status: http.StatusBadRequest, Detail: detail}
}

var (
	badSyntax  = badRequest(`The body is not a JSON object of the form {"key":"user:42","n":1}.`)
	badField   = badRequest(`The body has a field other than "key" and "n".`)
	badN       = badRequest(`"n" must be an integer of at least 1.`)
	badKey     = badRequest(`"key" must be a string of Unicode text, not empty and without U+FFFD.`)
	resetField = badRequest(`The body has a field other than "key".`)
	twice      = badRequest("The body has the same field twice.")
	trailer    = badRequest("The body has more data after the JSON object.")
)

// parseDemand is strict: json.Unmarshal would accept a field twice, its name in any case, and null
// for any value.
func parseDemand(body []byte, withN bool) (demand, *problem.Problem) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return demand{}, badSyntax
	}
	var (
		key *string
		n   *int64
	)
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return demand{}, badSyntax
		}
		var p *problem.Problem
		switch {
		case name == "key" && key != nil, name == "n" && n != nil:
			return demand{}, twice
		case name == "key":
			p = decodeField(dec, &key, badKey)
		case name == "n" && withN:
			p = decodeField(dec, &n, badN)
		case withN:
			p = badField
		default:
			p = resetField
		}
		if p != nil {
			return demand{}, p
		}
	}
	if _, err := dec.Token(); err != nil {
		return demand{}, badSyntax
	}
	if _, err := dec.Token(); err != io.EOF {
		return demand{}, trailer
	}
	// The decoder replaces invalid UTF-8 by U+FFFD: keys that differ only there would share a
	// limit.
	if key == nil || *key == "" || strings.ContainsRune(*key, utf8.RuneError) {
		return demand{}, badKey
	}
	d := demand{key: *key, n: 1}
	if n != nil {
		d.n = *n
	}
	if d.n < 1 {
		return demand{}, badN
	}
	return d, nil
}

// decodeField reads the next value into a new *field. It returns wrong if the value is null or of
// another type.
func decodeField[T any](dec *json.Decoder, field **T, wrong *problem.Problem) *problem.Problem {
	err := dec.Decode(field)
	if mistyped := (*json.UnmarshalTypeError)(nil); errors.As(err, &mistyped) {
		return wrong
	}
	if err != nil {
		return badSyntax
	}
	if *field == nil {
		return wrong
	}
	return nil
}
