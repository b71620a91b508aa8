package httpapi

import (
	"net/http"
	"time"

	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// WithRetryAfter gives each answer of 503 the field Retry-After, with pause in whole seconds, at
// least one: that is when the breaker tries the store again. The jitter is that of [edge.Jitter].
func WithRetryAfter(pause time.Duration, jitter float64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&retryAfterWriter{w, pause, jitter}, r)
	})
}

type retryAfterWriter struct {
	http.ResponseWriter
	pause  time.Duration
	jitter float64
}

func (w *retryAfterWriter) WriteHeader(status int) {
	if h := w.Header(); status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		setRetryAfter(h, w.pause, w.jitter)
	}
	w.ResponseWriter.WriteHeader(status)
}

func setRetryAfter(h http.Header, wait time.Duration, jitter float64) {
	problem.SetRetryAfter(h, edge.Jitter(max(1, wait), time.Second, jitter))
}

// Unwrap is for [http.ResponseController].
func (w *retryAfterWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
