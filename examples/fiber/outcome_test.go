package main

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/truewindow/ratelimit/examples/internal/requests"
)

func TestOutcome(t *testing.T) {
	requests.CheckOutcome(t, func(limit func(http.Handler) http.Handler) string {
		app := fiber.New()
		app.Get("/:status", middleware(limit), func(c fiber.Ctx) error {
			if c.Params("status") == "401" {
				return fiber.ErrUnauthorized
			}
			return c.SendString("ok")
		})
		return serve(t, app)
	})
}
