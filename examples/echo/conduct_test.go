package main

import (
	"context"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

func TestConduct(t *testing.T) {
	adaptertest.Run(t, adaptertest.HTTP(func(
		t testing.TB, limit func(http.Handler) http.Handler, work func(context.Context) error,
	) string {
		e := echo.New()
		e.GET("/", func(c *echo.Context) error {
			if err := work(c.Request().Context()); err != nil {
				return echo.NewHTTPError(adaptertest.StatusFailed, "failed")
			}
			return nil
		}, echo.WrapMiddleware(limit), answerErrors)
		return adaptertest.ServeHTTP(t, e)
	}, nil))
}
