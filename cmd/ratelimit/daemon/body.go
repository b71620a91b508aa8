package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Bounds of a request about budgets. They keep every token that the daemon returns below maxToken.
const (
	maxClaims = 16
	maxKey    = 1 << 10  // bytes of a key
	maxToken  = 48 << 10 // bytes; a body of maxBody has room for it
	maxWait   = 5000     // ms that a request waits for a call in flight
)

// A field reads the value of a field of a JSON object.
type field func(*json.Decoder) *problem.Problem

// fields has the reader of each field that an object may have.
type fields map[string]field

// readFields reads the body of a POST request into f. If the request is wrong, it answers why and
// returns false.
func readFields(w http.ResponseWriter, r *http.Request, f fields) bool {
	if !methodIsOneOf(w, r, http.MethodPost) {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		problem.Problem{
			Type: problemDocs + "invalid-request", Status: http.StatusUnsupportedMediaType,
			Detail: `The Content-Type must be application/json, which "curl --json" sends.`,
		}.Write(w)
		return false
	}
	body, p := readBody(w, r)
	if p == nil {
		p = f.parse(body)
	}
	if p != nil {
		if p.Type == "" {
			typed := *p
			typed.Type, p = problemDocs+"invalid-request", &typed
		}
		p.Write(w)
		return false
	}
	return true
}

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
			return badRequest(fmt.Sprintf("%q is given twice.", name))
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

func (f fields) unknown() *problem.Problem {
	return badRequest("An object has an unknown field; the fields are " + f.names() + ".")
}

func (f fields) wrong() *problem.Problem {
	return badRequest("The body is not JSON, or lacks an object where one with the fields " +
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

// value returns a field that is read into dst. rule is the answer to a value of another type.
func value[T any](dst **T, rule string) field {
	return func(dec *json.Decoder) *problem.Problem {
		return decodeField(dec, dst, badRequest(rule))
	}
}

// integer returns a field of an integer that the caller checks to be from low to high.
func integer(dst **int64, name string, low, high int64) field {
	return value(dst, integerRule(name, low, high))
}

func integerRule(name string, low, high int64) string {
	return fmt.Sprintf("%q must be an integer from %d to %d, in digits only.", name, low, high)
}

// claimBody is a claim as requests write it.
type claimBody struct {
	limit *string
	key   *string
	n     *int64
}

func (c *claimBody) fields() fields {
	f := c.target()
	f["n"] = integer(&c.n, "n", 0, driver.MaxUnits)
	return f
}

const limitIsString = `"limit" must be a string.`

// target returns the fields of a claim without its units.
func (c *claimBody) target() fields {
	return fields{
		"limit": value(&c.limit, limitIsString),
		"key":   value(&c.key, `"key" must be a string.`),
	}
}

const claimsRequired = `"claims" must be a list of at least one claim.`

// claimList returns the field of a list of claims.
func claimList(dst *[]claimBody) field {
	return list(claimsRequired, func(dec *json.Decoder) *problem.Problem {
		if len(*dst) == maxClaims {
			return badRequest(fmt.Sprintf("There are more than %d claims.", maxClaims))
		}
		var c claimBody
		p := c.fields().decode(dec)
		if p != nil {
			p = badRequest(where(len(*dst)) + ": " + p.Detail)
		}
		*dst = append(*dst, c)
		return p
	})
}

// unitList returns the field of a list of units, one for each claim. It sets dst also for an empty
// list.
func unitList(dst *[]int64, rule string) field {
	read := list(rule, func(dec *json.Decoder) *problem.Problem {
		var n *int64
		p := value(&n, rule)(dec)
		if p == nil && (*n < 0 || *n > driver.MaxUnits || len(*dst) == maxClaims) {
			p = badRequest(rule)
		}
		if p == nil {
			*dst = append(*dst, *n)
		}
		return p
	})
	return func(dec *json.Decoder) *problem.Problem {
		*dst = []int64{}
		return read(dec)
	}
}

// list returns a field that has each element of an array read by element. rule is the answer to a
// value of another type.
func list(rule string, element field) field {
	return func(dec *json.Decoder) *problem.Problem {
		if tok, err := dec.Token(); err != nil {
			return notJSON
		} else if tok != json.Delim('[') {
			return badRequest(rule)
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

// checkKey reports a key that is missing, too long or not Unicode text.
func checkKey(key *string) *problem.Problem {
	switch {
	case !isText(key):
		return badKey
	case len(*key) > maxKey:
		return badRequest(fmt.Sprintf(`"key" is longer than %d bytes.`, maxKey))
	}
	return nil
}
