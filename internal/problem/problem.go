// Package problem writes problem details for HTTP (RFC 9457) for the edges of this module.
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// ContentType is the media type of a body that Write sends.
const ContentType = "application/problem+json"

// QuotaExceeded is the registered type of a refusal, which names the limits that refused in
// ViolatedPolicies.
const QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// The registered types of a refusal at limits that are lower than usual, and of one by a block.
const (
	ReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	AbnormalUsage   = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// A Problem is why a request was not served. It goes to the client: it holds no key and nothing
// about the insides of the server.
type Problem struct {
	Type             string   `json:"type,omitempty"`  // a URI; empty means that Status says it all
	Title            string   `json:"title,omitempty"` // filled in from Status if empty
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// Write answers a request with p, and forbids caches to store it.
func (p Problem) Write(w http.ResponseWriter) {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	Send(w, p.Status, p)
}

// Send is Write for problem details with members of their own: details is a struct that embeds a
// Problem with a Title, and can be written as JSON.
func Send(w http.ResponseWriter, status int, details any) {
	body, err := json.Marshal(details)
	if err != nil { // strings, numbers and booleans only
		panic(err)
	}
	body = append(body, '\n')
	h := w.Header()
	// Others may have described the answer that now is not given.
	for _, name := range []string{"Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", ContentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails only if the client has gone
}

// SetRetryAfter sets Retry-After to d in whole seconds, rounded up, and to at least one.
func SetRetryAfter(h http.Header, d time.Duration) {
	seconds := max(1, (d-1)/time.Second+1) // which does not overflow
	h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
}
