package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/truewindow/ratelimit/httplimit/problem"
)

// maxBody is the largest size of a request's body in bytes. It also bounds the key of a take.
const maxBody = 64 << 10

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
	badKey  = badRequest(`"key" must be a string of Unicode text, not empty and without U+FFFD.`)
	notJSON = badRequest("The body is not JSON.")
	trailer = badRequest("The body has more data after the JSON object.")
)

// readDemand reads the body of a POST request into f, whatever its Content-Type, and key, which is
// required. If the request is wrong, it answers why and returns false.
func readDemand(w http.ResponseWriter, r *http.Request, f fields, key **string) bool {
	if !methodIsOneOf(w, r, http.MethodPost) {
		return false
	}
	f["key"] = value(key, badKey.Detail)
	body, p := readBody(w, r)
	if p == nil {
		p = f.parse(body)
	}
	if p == nil && !isText(*key) {
		p = badKey
	}
	if p != nil {
		p.Write(w)
	}
	return p == nil
}

// isText reports whether a key is Unicode text. The decoder replaces invalid UTF-8 by U+FFFD: keys
// that differ only there would share a limit.
func isText(key *string) bool {
	return key != nil && *key != "" && !strings.ContainsRune(*key, utf8.RuneError)
}

// decodeField reads the next value into a new *field. It returns wrong if the value is null, of
// another type, or too large for it.
func decodeField[T any](dec *json.Decoder, field **T, wrong *problem.Problem) *problem.Problem {
	err := dec.Decode(field)
	if mistyped := (*json.UnmarshalTypeError)(nil); errors.As(err, &mistyped) {
		return wrong
	}
	if err != nil {
		return notJSON
	}
	if *field == nil {
		return wrong
	}
	return nil
}
