// Package problem writes problem details for HTTP (RFC 9457), for the daemon and the middleware.
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
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
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	Send(w, p.Status, p)
}

// Send is Write for problem details with additional members: details is a struct that embeds a
// Problem with a Title. Send panics if details cannot be encoded as JSON.
func Send(w http.ResponseWriter, status int, details any) {
	body, err := json.Marshal(details)
	if err != nil {
		panic(err)
	}
	body = append(body, '\n')
	h := w.Header()
	// Another handler may have set these for an answer that is not sent now.
	for _, name := range []string{"Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", ContentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails only if the client has disconnected
}

// SetRetryAfter sets Retry-After to d in whole seconds, rounded up, and to at least 1.
func SetRetryAfter(h http.Header, d time.Duration) {
	seconds := max(1, (d-1)/time.Second+1) // which does not overflow
	h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
}
