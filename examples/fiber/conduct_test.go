package main

import (
	"context"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

func TestConduct(t *testing.T) {
	left := "Fiber does not see that a client has left"
	adaptertest.Run(t, adaptertest.HTTP(func(
		t testing.TB, limit func(http.Handler) http.Handler, work func(context.Context) error,
	) string {
		app := fiber.New()
		app.Use(recover.New())
		app.Get("/", middleware(limit), func(c fiber.Ctx) error {
			if work(c.Context()) != nil {
				return fiber.NewError(adaptertest.StatusFailed)
			}
			return nil
		})
		return serve(t, app)
	}, map[string]string{"budget, disconnect": left, "in flight, disconnect": left}))
}
