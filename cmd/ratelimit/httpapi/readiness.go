package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Readiness says whether load balancers should send requests here: not while the service drains,
// nor while the store is unavailable and requests get 503 for it.
type Readiness struct {
	draining context.Context
	drain    func()
	probe    func(context.Context) error

	mu    sync.Mutex // held during a probe, so that there is one at a time
	until time.Time  // until when err is repeated
	err   error
}

// ProbeTimeout bounds a probe, so that a server that does not answer delays the start of the
// service by a second at most.
const ProbeTimeout = time.Second

// probeAge is for how long the outcome of a probe counts, so that clients cannot load the server.
const probeAge = time.Second

// NewReadiness returns the readiness of a service that does not drain. probe returns an error while
// the store is unavailable; it is nil if requests are answered all the same.
func NewReadiness(probe func(context.Context) error) *Readiness {
	draining, drain := context.WithCancel(context.Background())
	return &Readiness{draining: draining, drain: drain, probe: probe}
}

// Drain makes the service not ready, for good.
func (r *Readiness) Drain() { r.drain() }

// Draining returns a context that ends when the service drains.
func (r *Readiness) Draining() context.Context { return r.draining }

// CloseWhileDraining has clients close their connections after an answer while the service drains:
// one that is still open at the end loses the request that its client sends just then.
func (r *Readiness) CloseWhileDraining(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.draining.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}

// Answer answers whether the service is ready.
func (r *Readiness) Answer(w http.ResponseWriter, req *http.Request) {
	if !MethodIsOneOf(w, req, http.MethodGet, http.MethodHead) {
		return
	}
	if p := r.problem(req.Context()); p != nil {
		p.Write(w)
		return
	}
	writeOK(w)
}

// problem returns why the service is not ready, or nil.
func (r *Readiness) problem(ctx context.Context) *problem.Problem {
	switch {
	case r.draining.Err() != nil:
		return &problem.Problem{Status: http.StatusServiceUnavailable,
			Detail: "The service is about to stop."}
	case r.unavailable(ctx) != nil:
		return &problem.Problem{Status: http.StatusServiceUnavailable,
			Detail: "The store is unavailable."}
	}
	return nil
}

func (r *Readiness) unavailable(ctx context.Context) error {
	if r.probe == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.After(r.until) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ProbeTimeout)
		defer cancel()
		r.err, r.until = r.probe(ctx), time.Now().Add(probeAge)
	}
	return r.err
}
