package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"github.com/truewindow/ratelimit/dashboard"
)

// TestRouters: the page, its files, forms and events are found below /limits/ of each router.
func TestRouters(t *testing.T) {
	page, err := dashboard.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	gin.SetMode(gin.TestMode)
	router, e, engine, app := chi.NewRouter(), echo.New(), gin.New(), fiber.New()

	router.Handle("/limits/*", page)                // chi
	e.Any("/limits/*", echo.WrapHandler(page))      // Echo
	engine.Any("/limits/*page", gin.WrapH(page))    // Gin
	app.All("/limits/*", adaptor.HTTPHandler(page)) // Fiber

	for name, h := range map[string]http.Handler{"chi": router, "echo": e, "gin": engine} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(h)
			defer server.Close()
			visit(t, server.URL)
		})
	}
	t.Run("fiber", func(t *testing.T) {
		listener, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() {
			served <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true})
		}()
		visit(t, "http://"+listener.Addr().String())
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func visit(t *testing.T, server string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, v := range []struct {
		method, path string
		status       int
		begins       string
	}{
		{http.MethodGet, "/limits/", http.StatusOK, "<!doctype html>"},
		{http.MethodGet, "/limits/page.css", http.StatusOK, ""},
		{http.MethodGet, "/limits/page.js", http.StatusOK, `"use strict"`},
		{http.MethodPost, "/limits/key", http.StatusForbidden, "<!doctype html>"}, // no token
		{http.MethodGet, "/limits/events", http.StatusOK, "retry: "},              // and never ends
	} {
		r, err := http.NewRequestWithContext(t.Context(), v.method, server+v.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		got := make([]byte, len(v.begins))
		if _, err := io.ReadFull(res.Body, got); err != nil {
			t.Errorf("%s: %v", v.path, err)
		}
		if res.StatusCode != v.status || string(got) != v.begins {
			t.Errorf("%s: status %d, and it begins with %q", v.path, res.StatusCode, got)
		}
	}
}
