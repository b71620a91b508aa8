// Package main shows the page of limits, and calls for it to show.
package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"log"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/dashboard"
	"github.com/truewindow/ratelimit/shadow"
	"github.com/truewindow/ratelimit/topkeys"
)

func main() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, page, err := newLimiter(store)
	if err != nil {
		log.Fatal(err)
	}
	go call(context.Background(), limiter)

	password := rand.Text()
	mux := http.NewServeMux()
	mux.Handle("/limits/", withPassword(password, page))
	fmt.Println("http://localhost:8080/limits/ with any name and the password", password)
	log.Fatal(http.ListenAndServe("localhost:8080", mux))
}

// newLimiter returns a limiter and the page that shows it, with a trial of a stricter limit and the
// keys that are refused most. Keys are users such as user:1.
func newLimiter(store ratelimit.Store) (*ratelimit.Limiter, *dashboard.Page, error) {
	limiter, err := ratelimit.New(store,
		algorithm.Blocking("blocked", 24*time.Hour),
		algorithm.SlidingLog(ratelimit.PerSecond("second", 10)),
		algorithm.SlidingLog(ratelimit.PerMinute("minute", 120)),
	)
	if err != nil {
		return nil, nil, err
	}
	trial, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("stricter", 60)))
	if err != nil {
		return nil, nil, err
	}
	refused, err := topkeys.New(nil)
	if err != nil {
		return nil, nil, err
	}

	page, err := dashboard.New(&dashboard.Options{
		Store: store, Limits: limiter.Algorithms, Top: refused,
		MayWrite: func(*http.Request) bool { return true }, // whoever has the password
	})
	if err != nil {
		return nil, nil, err
	}
	try, err := shadow.New(limiter, trial, page.ObserveShadow)
	if err != nil {
		return nil, nil, err
	}
	limiter = limiter.WithObserver(func(ctx context.Context, o ratelimit.Observation) {
		page.Observe(ctx, o)
		refused.Observe(ctx, o)
		try(ctx, o)
	})
	return limiter, page, nil
}

// call makes 50 calls a second for 20 users, most of them for the first ones, until ctx ends.
func call(ctx context.Context, limiter *ratelimit.Limiter) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			user := fmt.Sprint("user:", 1+mathrand.IntN(1+mathrand.IntN(20)))
			if _, err := limiter.Allow(ctx, user); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		}
	}
}

// withPassword passes on requests that have the password, by HTTP basic authentication.
func withPassword(password string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, got, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(got), []byte(password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="limits"`)
			http.Error(w, "the password is missing or wrong", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
