package main

import (
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/examples/internal/requests"
)

func TestRequests(t *testing.T) {
	requests.Check(t, func(store ratelimit.Store, work func(string) string) string {
		handler, err := newHandler(store, work)
		return requests.Handler(t, handler, err)
	})
}
