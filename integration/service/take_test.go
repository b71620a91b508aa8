package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An answer is what a client got when it took a unit of a key under the limit of the same name as
// the entry.
type answer struct {
	began  time.Time
	took   time.Duration
	status int   // 0 after an error
	limit  int64 // the Max that decided
	closed bool  // the service asked to close the connection
	err    error
}

// newClient returns a client with connections of its own, closed at the end of the test.
func newClient(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// take takes a unit from the service at url. An error, or a status that is no decision, means that
// the unit may have been taken.
func take(ctx context.Context, client *http.Client, url, entry, key string) (a answer) {
	a.began = time.Now()
	defer func() { a.took = time.Since(a.began) }()
	body := fmt.Sprintf(`{"descriptor":{%q:%q}}`, entry, key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/decide",
		strings.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	res, err := client.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		a.err = err
		return a
	}
	a.status, a.closed = res.StatusCode, res.Close
	var decided struct{ Limit int64 }
	if a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
		a.err = fmt.Errorf("%d %s", a.status, text)
	} else if err := json.Unmarshal(text, &decided); err != nil {
		a.err = err
	}
	a.limit = decided.Limit
	return a
}

// A tally counts units by key.
type tally struct {
	mu   sync.Mutex
	keys map[string]*units
}

// units are what clients got of a key. Those that are unknown may have been taken.
type units struct{ admitted, unknown int64 }

func newTally() *tally { return &tally{keys: make(map[string]*units)} }

func (c *tally) add(key string, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.keys[key]
	if u == nil {
		u = new(units)
		c.keys[key] = u
	}
	switch {
	case errors.Is(a.err, syscall.ECONNREFUSED):
	case a.err != nil:
		u.unknown++
	case a.status == http.StatusOK:
		u.admitted++
	}
}

// useUp takes what is left of every key under the limit of an entry, and checks that exactly its
// units were admitted of each in all, or fewer by those that are unknown. Keys that had more before
// get no more. It returns the sums.
func (c *tally) useUp(t *testing.T, url, entry string, limit int64) (sum units) {
	t.Helper()
	client := newClient(t)
	for key, u := range c.keys {
		want := max(limit, u.admitted)
		for a := (answer{status: http.StatusOK}); a.status == http.StatusOK && u.admitted <= want; {
			if a = take(t.Context(), client, url, entry, key); a.err != nil {
				t.Fatalf("%s %s: %v", entry, key, a.err)
			}
			if a.limit != limit {
				t.Errorf("%s %s: a Max of %d decides, want %d", entry, key, a.limit, limit)
			}
			c.add(key, a)
		}
		if u.admitted > want || u.admitted+u.unknown < limit {
			t.Errorf("%s %s: %d units were admitted and %d may have been, want %d",
				entry, key, u.admitted, u.unknown, want)
		}
		sum.admitted += u.admitted
		sum.unknown += u.unknown
	}
	return sum
}

// most returns the most units that were admitted of a key.
func (c *tally) most() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.keys {
		n = max(n, u.admitted)
	}
	return n
}

// admitted returns how many units were admitted of all keys.
func (c *tally) admitted() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.keys {
		n += u.admitted
	}
	return n
}

// clients runs n clients, each of which calls f with a number of its own and then pauses, until
// stop is called. stop waits for them.
func clients(n int, pause time.Duration, f func(client, call int)) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for call := 0; ; call++ {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				f(i, call)
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		wg.Wait()
	})
}
