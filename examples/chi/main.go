// Package main limits the requests of a chi router, by user and route.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/clientip"
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

	router := chi.NewRouter()
	// The key needs the route. Middleware of With runs after routing, that of Use before it.
	limited := router.With(limit)
	get := func(w http.ResponseWriter, r *http.Request) {
		decision, _ := httplimit.FromContext(r.Context())
		fmt.Fprintf(w, "%s, %d left", work(r.PathValue("id")), decision.Results[0].Remaining)
	}
	limited.Get("/users/{id}", get)
	limited.Get("/reports/{id}", get)
	limited.Delete("/users/{id}", get)

	logins, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("logins", 3)))
	if err != nil {
		return nil, err
	}
	address := clientip.FromContext(middleware.GetClientIP)
	limitLogins := httplimit.New(httplimit.PerKey(logins, address.Key))
	// The proxy is on this machine.
	fromProxy := middleware.ClientIPFromXFF("127.0.0.1/32", "::1/128")
	login := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, work("login")) }
	router.With(fromProxy, limitLogins).Post("/login", login)
	return router, nil
}
