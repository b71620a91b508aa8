package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/go-chi/httprate"
	golimiterhttp "github.com/sethvargo/go-limiter/httplimit"
	golimiter "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/httplimit"
	ulule "github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
)

// A middleware limits the requests of a handler by the address of the peer.
type middleware struct {
	wrap  func(http.Handler) http.Handler
	close func() // or nil
}

// httpEntry is a measured middleware.
type httpEntry struct {
	name string
	open func(q quota) (middleware, error)
}

const bare = "bare" // the handler alone

var httpEntries = []httpEntry{
	{xTime, openXTimeHTTP},
	{ours, func(q quota) (middleware, error) { return openOursHTTP(q) }},
	{ululeName, openUluleHTTP},
	{throttledName, openThrottledHTTP},
	{goLimiter, openGoLimiterHTTP},
	{httprateName, openHTTPRateHTTP},
	{bare, func(quota) (middleware, error) {
		return middleware{wrap: func(next http.Handler) http.Handler { return next }}, nil
	}},
}

// openHTTPEntry opens the middleware of an entry for several limits. This module decides them
// together; the middlewares of others are chained.
func openHTTPEntry(e httpEntry, quotas ...quota) (m middleware, err error) {
	if e.name == ours {
		return openOursHTTP(quotas...)
	}
	m.wrap = func(next http.Handler) http.Handler { return next }
	for _, q := range quotas {
		inner := m
		outer, err := e.open(q)
		if err != nil {
			inner.stop()
			return middleware{}, err
		}
		m = middleware{
			wrap:  func(next http.Handler) http.Handler { return outer.wrap(inner.wrap(next)) },
			close: func() { inner.stop(); outer.stop() },
		}
	}
	return m, nil
}

func (m middleware) stop() {
	if m.close != nil {
		m.close()
	}
}

func openOursHTTP(quotas ...quota) (middleware, error) {
	store, err := memorystore.New(&memorystore.Options{MaxKeys: maxKeys})
	if err != nil {
		return middleware{}, err
	}
	var logs []ratelimit.Algorithm
	for i, q := range quotas {
		limit := q.limit()
		limit.Name = fmt.Sprint("limit", i+1)
		logs = append(logs, algorithm.SlidingLog(limit))
	}
	limiter, err := ratelimit.New(store, logs...)
	if err != nil {
		store.Close()
		return middleware{}, err
	}
	return middleware{
		wrap: func(next http.Handler) http.Handler {
			return httplimit.Handler(limiter, clientip.RemoteAddr, next)
		},
		close: func() { store.Close() },
	}, nil
}

// openXTimeHTTP is what a program writes without a middleware library. It writes no fields.
func openXTimeHTTP(q quota) (middleware, error) {
	d, err := openXTime(q)
	return middleware{wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, err := peerHost(r)
			if err != nil {
				http.Error(w, "bad request", http.StatusBadRequest)
				return
			}
			if ok, _ := d.allow(r.Context(), host); !ok {
				http.Error(w, "too many requests", http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}}, err
}

func peerHost(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return host, err
}

func openUluleHTTP(q quota) (middleware, error) {
	limiter := ulule.New(ululememory.NewStore(), ulule.Rate{Period: q.window, Limit: q.max})
	return middleware{wrap: ululehttp.NewMiddleware(limiter).Handler}, nil
}

func openThrottledHTTP(q quota) (middleware, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return middleware{}, err
	}
	limiter, err := newThrottled(store, q)
	if err != nil {
		return middleware{}, err
	}
	limit := &throttled.HTTPRateLimiterCtx{RateLimiter: limiter,
		VaryBy: &throttled.VaryBy{Custom: func(r *http.Request) string {
			host, _ := peerHost(r)
			return host
		}}}
	return middleware{wrap: limit.RateLimit}, nil
}

func openGoLimiterHTTP(q quota) (middleware, error) {
	store, err := golimiter.New(&golimiter.Config{Tokens: uint64(q.max), Interval: q.window})
	if err != nil {
		return middleware{}, err
	}
	limit, err := golimiterhttp.NewMiddleware(store, golimiterhttp.IPKeyFunc())
	return middleware{wrap: limit.Handle, close: func() { store.Close(context.Background()) }}, err
}

func openHTTPRateHTTP(q quota) (middleware, error) {
	key := func(r *http.Request) (string, error) {
		host, err := peerHost(r)
		return httprate.CanonicalizeIP(host), err
	}
	return middleware{wrap: httprate.LimitBy(int(q.max), q.window, key)}, nil
}
