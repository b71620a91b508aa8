// Package main limits the requests of a Fiber server, by user and route.
package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
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
	app, err := newApp(store, func(id string) string { return "user " + id })
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(app.Listen("localhost:8080"))
}

// newApp returns the routes of a service. work returns what the service has for an id.
func newApp(store ratelimit.Store, work func(id string) string) (*fiber.App, error) {
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", 3)))
	if err != nil {
		return nil, err
	}
	// X-User is from a proxy that has authenticated the user.
	key := httplimit.Join(httplimit.Header("X-User"), httplimit.Route)
	limit := httplimit.New(httplimit.PerKey(limiter, key))

	app := fiber.New()
	get := func(c fiber.Ctx) error {
		decision, _ := httplimit.FromContext(c.Context())
		text := fmt.Sprintf("%s, %d left", work(c.Params("id")), decision.Results[0].Remaining)
		return c.SendString(text)
	}
	// A middleware of Use would see its own route instead of the route of the request.
	app.Get("/users/:id", middleware(limit), get)
	app.Get("/reports/:id", middleware(limit), get)
	app.Delete("/users/:id", middleware(limit), get)
	return app, nil
}

// middleware runs the rest of the chain inside a middleware of net/http. Fiber's
// adaptor.HTTPMiddleware would run it after that has returned: calls in flight are then released,
// httplimit.WithCounting does not see the status, and the decision is not in the context.
func middleware(m func(http.Handler) http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		request, err := adaptor.ConvertRequest(c, true)
		if err != nil {
			return err
		}
		request.Pattern = c.Route().Path
		answer := &response{ctx: c, header: http.Header{}}
		m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer.writeHeader()
			c.SetContext(r.Context())
			err = c.Next()
			status := c.Response().StatusCode()
			if failed := (*fiber.Error)(nil); errors.As(err, &failed) {
				status = failed.Code
			} else if err != nil {
				status = http.StatusInternalServerError
			}
			answer.passed = true
			w.WriteHeader(status) // reports the status to httplimit.WithCounting
		})).ServeHTTP(answer, request.WithContext(c.Context()))
		return err
	}
}

// A response is the http.ResponseWriter of a refusal.
type response struct {
	ctx    fiber.Ctx
	header http.Header
	passed bool // the rest of the chain has answered
}

func (r *response) Header() http.Header { return r.header }

func (r *response) Write(b []byte) (int, error) { return r.ctx.Write(b) }

func (r *response) WriteHeader(status int) {
	if !r.passed {
		r.writeHeader()
		r.ctx.Status(status)
	}
}

func (r *response) writeHeader() {
	for name, values := range r.header {
		for _, value := range values {
			r.ctx.Response().Header.Add(name, value)
		}
	}
}
