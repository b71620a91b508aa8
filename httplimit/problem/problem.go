// Package problem writes problem details for HTTP (RFC 9457), for the daemon and the middleware.
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ContentType is the media type of a body that Write sends.
const ContentType = "application/problem+json"

// QuotaExceeded is the type of a refusal. ViolatedPolicies has the names of the limits
// that refused.
const QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// The types of a refusal by limits that are lower than usual, and by a block.
const (
	ReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	AbnormalUsage   = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// A Problem says why a request was not served. It is sent to the client, so it has no key in it and
// nothing about the internals of the server.
type Problem struct {
	Type             string   `json:"type,omitempty"`  // a URI; empty means that Status says it all
	Title            string   `json:"title,omitempty"` // filled in from Status if empty
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// Write answers a request with p. Caches may not store the answer.
func (p Problem) Write(w http.ResponseWriter) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	*buf = p.append((*buf)[:0])
	send(w, p.Status, *buf)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// append appends p as [json.Marshal] encodes it, and a newline. Reflection would take most of the
// time of a refusal.
func (p Problem) append(b []byte) []byte {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	b = append(b, '{')
	if p.Type != "" {
		b = append(appendString(append(b, `"type":`...), p.Type), ',')
	}
	if p.Title != "" {
		b = append(appendString(append(b, `"title":`...), p.Title), ',')
	}
	b = strconv.AppendInt(append(b, `"status":`...), int64(p.Status), 10)
	if p.Detail != "" {
		b = appendString(append(b, `,"detail":`...), p.Detail)
	}
	for i, name := range p.ViolatedPolicies {
		if i == 0 {
			b = append(b, `,"violated-policies":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendString(b, name)
	}
	if len(p.ViolatedPolicies) > 0 {
		b = append(b, ']')
	}
	return append(b, '}', '\n')
}

// appendString appends s as JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if !plain[s[i]] {
			quoted, _ := json.Marshal(strings.Clone(s)) // a string does not fail; s does not escape
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// plain has the bytes that [json.Marshal] does not escape.
var plain = func() (is [256]bool) {
	for c := ' '; c <= '~'; c++ {
		is[c] = !strings.ContainsRune(`"\<>&`, c)
	}
	return is
}()

func send(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	// Another handler may have set these for an answer that is not sent now.
	for _, name := range [...]string{"Content-Encoding", "Etag", "Last-Modified"} {
		delete(h, name)
	}
	values := &[...]string{ContentType, strconv.Itoa(len(body)), "no-store", "nosniff"}
	h["Content-Type"] = values[0:1:1]
	h["Content-Length"] = values[1:2:2]
	h["Cache-Control"] = values[2:3:3]
	h["X-Content-Type-Options"] = values[3:4:4]
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails only if the client has disconnected
}

// SetRetryAfter sets Retry-After to d in whole seconds, rounded up, and to at least 1.
func SetRetryAfter(h http.Header, d time.Duration) {
	seconds := max(1, (d-1)/time.Second+1) // which does not overflow
	h["Retry-After"] = []string{strconv.FormatInt(int64(seconds), 10)}
}
