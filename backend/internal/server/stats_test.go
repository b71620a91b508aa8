package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// hanging is a client whose commands end when it is closed.
type hanging struct {
	Client
	closed chan struct{}
}

func (hanging) Cluster() bool                   { return false }
func (hanging) Lost(error)                      {}
func (hanging) Unsent(error) bool               { return false }
func (hanging) ErrorReply(error) (string, bool) { return "", false }

func (h hanging) Run(_ context.Context, c *Command) {
	c.Gate.Open()
	<-h.closed
	c.Err = errors.New("closed")
}

func demandOn(key string, n int64) driver.Demand {
	limit := algorithm.SlidingLog(driver.PerHour("hour", 1000))
	return driver.Demand{Key: key, Algorithm: limit, N: n}
}

// TestStats makes more calls than the bounds permit to a server that does not answer. Calls beyond
// the bounds fail at once and are counted, all others fail by their deadline, and nothing is left
// when the client has ended its commands.
func TestStats(t *testing.T) {
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single=%t", single), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStats(t, single) })
		})
	}
}

func testStats(t *testing.T, single bool) {
	const beyond = 30
	client := hanging{closed: make(chan struct{})}
	s, err := New(client, Words{}, serverstore.Options{NoBatching: single})
	if err != nil {
		t.Fatal(err)
	}
	want := func(want serverstore.Stats) {
		t.Helper()
		want.MaxQueued, want.MaxAbandoned = batch.MaxQueued, batch.MaxAbandoned
		if got := s.Stats(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	var wg sync.WaitGroup
	var atOnce, late atomic.Int64
	call := func(n int) {
		for range n {
			wg.Go(func() {
				start := time.Now()
				_, err := s.Take(t.Context(), demandOn("key", 1))
				switch took := time.Since(start); {
				case !errors.Is(err, driver.ErrUnavailable) || took > DefaultTimeout:
					t.Errorf("%v after %v", err, took)
				case took == 0:
					atOnce.Add(1)
				default:
					late.Add(1)
				}
			})
			synctest.Wait()
		}
	}
	want(serverstore.Stats{})
	if single {
		call(batch.MaxAbandoned)
		wg.Wait()
		call(beyond)
		want(serverstore.Stats{Abandoned: batch.MaxAbandoned, Refused: beyond})
	} else {
		call(2 + batch.MaxQueued)
		want(serverstore.Stats{Queued: batch.MaxQueued})
		call(beyond)
		want(serverstore.Stats{Queued: batch.MaxQueued, Refused: beyond})
	}
	wg.Wait()
	if atOnce.Load() != beyond {
		t.Errorf("%d failed at once and %d by their deadline, want %d at once",
			atOnce.Load(), late.Load(), beyond)
	}
	close(client.closed)
	synctest.Wait()
	want(serverstore.Stats{Refused: beyond})
}
