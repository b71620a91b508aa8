// Package main limits the requests of a Gin server, by user and route.
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"
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

	router := gin.New()
	router.Use(gin.Recovery())
	// A group's middleware does not run for a route that does not exist.
	limited := router.Group("/", middleware(limit))
	get := func(c *gin.Context) {
		decision, _ := httplimit.FromContext(c.Request.Context())
		c.String(http.StatusOK, "%s, %d left", work(c.Param("id")),
			decision.Results[0].Remaining)
	}
	limited.GET("/users/:id", get)
	limited.GET("/reports/:id", get)
	limited.DELETE("/users/:id", get)
	return router, nil
}

// middleware runs the rest of the chain inside a middleware of net/http.
func middleware(m func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		c.Request.Pattern = c.FullPath()
		m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
			w.WriteHeader(c.Writer.Status()) // reports the status to httplimit.WithCounting
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}
