// Package main limits the requests of an Echo server, by user and route.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/labstack/echo/v5"
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

	e := echo.New()
	// A group's middleware does not run for a route that does not exist.
	limited := e.Group("", echo.WrapMiddleware(limit), answerErrors)
	get := func(c *echo.Context) error {
		decision, _ := httplimit.FromContext(c.Request().Context())
		text := fmt.Sprintf("%s, %d left", work(c.Param("id")), decision.Results[0].Remaining)
		return c.String(http.StatusOK, text)
	}
	limited.GET("/users/:id", get)
	limited.GET("/reports/:id", get)
	limited.DELETE("/users/:id", get)
	return e, nil
}

// answerErrors writes the answers to errors of handlers. Echo would do so after the middleware, too
// late for httplimit.WithCounting to see the status.
func answerErrors(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if err := next(c); err != nil {
			c.Echo().HTTPErrorHandler(c, err)
		}
		return nil
	}
}
