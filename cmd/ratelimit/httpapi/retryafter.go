package httpapi

import (
	"net/http"
	"time"

	"github.com/truewindow/ratelimit/httplimit/problem"
)

// WithRetryAfter gives each answer of 503 the field Retry-After, with pause in whole seconds, at
// least one: that is when the breaker tries the store again.
func WithRetryAfter(pause time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&retryAfterWriter{w, pause}, r)
	})
}

type retryAfterWriter struct {
	http.ResponseWriter
	pause time.Duration
}

func (w *retryAfterWriter) WriteHeader(status int) {
	if h := w.Header(); status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		problem.SetRetryAfter(h, w.pause)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *retryAfterWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
