package main

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/truewindow/ratelimit/examples/internal/requests"
)

func TestOutcome(t *testing.T) {
	requests.CheckOutcome(t, func(limit func(http.Handler) http.Handler) string {
		e := echo.New()
		e.GET("/:status", func(c *echo.Context) error {
			if c.Param("status") == "401" {
				return echo.ErrUnauthorized
			}
			return c.String(http.StatusOK, "ok")
		}, echo.WrapMiddleware(limit), answerErrors)
		return requests.Handler(t, e, nil)
	})
}
