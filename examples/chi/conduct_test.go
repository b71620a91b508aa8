package main

import (
	"context"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

func TestConduct(t *testing.T) {
	adaptertest.Run(t, adaptertest.HTTP(func(
		t testing.TB, limit func(http.Handler) http.Handler, work func(context.Context) error,
	) string {
		router := chi.NewRouter()
		router.With(limit).Method(http.MethodGet, "/", adaptertest.Handler(work))
		return adaptertest.ServeHTTP(t, router)
	}, nil))
}
