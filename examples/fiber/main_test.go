package main

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/examples/internal/requests"
)

func TestRequests(t *testing.T) {
	requests.Check(t, func(store ratelimit.Store, work func(string) string) string {
		app, err := newApp(store, work)
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, app)
	})
}

func serve(t testing.TB, app *fiber.App) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true})
	}()
	t.Cleanup(func() {
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}
