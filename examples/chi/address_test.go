package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		name   string
		header []string // X-Forwarded-For of one request after another
		want   []int
	}{
		{
			"one address",
			[]string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"},
			[]int{200, 200, 200, 429, 200},
		},
		{
			"the client invents addresses before its own",
			[]string{"192.0.2.1", "8.8.8.8, 192.0.2.1", "127.0.0.1, 192.0.2.1", "x, 192.0.2.1"},
			[]int{200, 200, 200, 429},
		},
		{
			"one network of IPv6",
			[]string{"2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4", "2001:db8:0:1::4"},
			[]int{200, 200, 200, 429, 200},
		},
		{
			"all without an address share a limit",
			[]string{"x", "y", "192.0.2.1, z", "", "192.0.2.1"},
			[]int{200, 200, 200, 429, 200},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, err := memorystore.New(&memorystore.Options{Now: func() int64 { return 1e15 }})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			worked := 0
			handler, err := newHandler(store, func(string) string {
				worked++
				return ""
			})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(handler)
			defer server.Close()
			passed := 0
			for i, header := range c.header {
				status := login(t, server, header)
				if status != c.want[i] {
					t.Errorf("request %d, of %q: answered with %d, want %d", i, header, status,
						c.want[i])
				}
				if c.want[i] == http.StatusOK {
					passed++
				}
			}
			if worked != passed {
				t.Errorf("the handler worked %d times, want %d", worked, passed)
			}
		})
	}
}

func login(t *testing.T, server *httptest.Server, forwardedFor string) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/login", nil)
	if err != nil {
		t.Fatal(err)
	}
	if forwardedFor != "" {
		r.Header.Set("X-Forwarded-For", forwardedFor)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	wantRetry := ""
	if response.StatusCode == http.StatusTooManyRequests {
		wantRetry = "3600"
	}
	if got := response.Header.Get("Retry-After"); got != wantRetry {
		t.Errorf("status %d has Retry-After %q, want %q", response.StatusCode, got, wantRetry)
	}
	return response.StatusCode
}
