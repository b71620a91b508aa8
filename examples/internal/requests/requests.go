// Package requests tests the example of a framework with requests over the network.
package requests

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// Limit is the number of requests that the examples admit in an hour for each user and route.
const Limit = 3

const problem = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
	`"title":"Quota Exceeded","status":429,"violated-policies":["hour"]}` + "\n"

// Check tests the server that serve starts: that of an example, which uses store and calls work.
// serve returns the server's URL.
func Check(
	t *testing.T, serve func(store ratelimit.Store, work func(id string) string) (url string),
) {
	t.Helper()
	// The clock stands still, so that all counts and times are exact.
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 { return 1e15 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	var worked atomic.Int64
	url := serve(store, func(id string) string {
		worked.Add(1)
		return "user " + id
	})
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)

	const all = 20
	var passed, refused atomic.Int64
	var left sync.Map
	var group sync.WaitGroup
	for id := range all {
		group.Go(func() {
			a := get(t, client, fmt.Sprintf("%s/users/%d", url, id), "ann")
			switch a.status {
			case http.StatusOK:
				passed.Add(1)
				left.Store(strings.TrimPrefix(a.body, fmt.Sprintf("user %d, ", id)), true)
				a.want(t, "RateLimit-Policy", `"hour";q=3;w=3600`)
				a.want(t, "Retry-After", "")
				a.want(t, "Content-Type", "text/plain; charset=utf-8")
			case http.StatusTooManyRequests:
				refused.Add(1)
				a.want(t, "RateLimit-Policy", `"hour";q=3;w=3600`)
				a.want(t, "RateLimit", `"hour";r=0;t=3600`)
				a.want(t, "Retry-After", "3600")
				a.want(t, "Content-Type", "application/problem+json")
				a.want(t, "Cache-Control", "no-store")
				if a.body != problem {
					t.Errorf("a refusal has the body %q, want %q", a.body, problem)
				}
			default:
				t.Errorf("answered with %d: %s", a.status, a.body)
			}
		})
	}
	group.Wait()
	if p, r := passed.Load(), refused.Load(); p != Limit || r != all-Limit {
		t.Errorf("passed %d and refused %d requests, want %d and %d", p, r, Limit, all-Limit)
	}
	if n := worked.Load(); n != Limit {
		t.Errorf("the handler worked %d times, want %d", n, Limit)
	}
	for n := range Limit {
		if _, ok := left.Load(fmt.Sprintf("%d left", n)); !ok {
			t.Errorf("no handler found %d left in its decision", n)
		}
	}

	for _, c := range []struct {
		name, method, path, user string
		status                   int
		works                    int64
	}{
		{"the user and route of the refusals", "GET", "/users/1", "ann",
			http.StatusTooManyRequests, 0},
		{"another route", "GET", "/reports/1", "ann", http.StatusOK, 1},
		{"another method", "DELETE", "/users/1", "ann", http.StatusOK, 1},
		{"another user", "GET", "/users/1", "bob", http.StatusOK, 1},
		{"no user", "GET", "/users/1", "", http.StatusBadRequest, 0},
		{"no such route", "GET", "/else", "carol", http.StatusNotFound, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := worked.Load()
			a := do(t, client, c.method, url+c.path, c.user)
			if a.status != c.status {
				t.Errorf("answered with %d, want %d: %s", a.status, c.status, a.body)
			}
			if n := worked.Load() - before; n != c.works {
				t.Errorf("the handler worked %d times, want %d", n, c.works)
			}
		})
	}
}

// Handler starts a server of h.
func Handler(t *testing.T, h http.Handler, err error) (url string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) want(t *testing.T, name, value string) {
	t.Helper()
	if got := strings.Join(a.header.Values(name), ", "); !strings.EqualFold(got, value) {
		t.Errorf("status %d has %s: %q, want %q", a.status, name, got, value)
	}
}

func get(t *testing.T, client *http.Client, url, user string) answer {
	return do(t, client, http.MethodGet, url, user)
}

func do(t *testing.T, client *http.Client, method, url, user string) answer {
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	if user != "" {
		r.Header.Set("X-User", user)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}
