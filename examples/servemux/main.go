// Package main limits the requests of a net/http server, by user and route.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/httplimit"
)

func main() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	handler, err := newHandler(store, func(id string) string { return "user " + id })
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", handler))
}

// newHandler returns the routes of a service. work returns what the service has for an id.
func newHandler(store ratelimit.Store, work func(id string) string) (http.Handler, error) {
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", 3)))
	if err != nil {
		return nil, err
	}
	// X-User is from a proxy that has authenticated the user.
	key := httplimit.Join(httplimit.Header("X-User"), httplimit.Route)
	limit := httplimit.New(httplimit.PerKey(limiter, key))
	get := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decision, _ := httplimit.FromContext(r.Context())
		fmt.Fprintf(w, "%s, %d left", work(r.PathValue("id")), decision.Results[0].Remaining)
	}))

	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", get)
	mux.Handle("GET /reports/{id}", get)
	mux.Handle("DELETE /users/{id}", get)
	return mux, nil
}
