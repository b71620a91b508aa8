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

	"github.com/truewindow/ratelimit"
)

// hanging is a client whose calls end when it is closed.
type hanging struct {
	Client
	closed chan struct{}
}

func (hanging) Cluster() bool                   { return false }
func (hanging) Lost(error)                      {}
func (hanging) Unsent(error) bool               { return false }
func (hanging) ErrorReply(error) (string, bool) { return "", false }

func (h hanging) Run(_ context.Context, gate *Gate, _, _ string, _, _ []string) (string, error) {
	gate.Open()
	<-h.closed
	return "", errors.New("closed")
}

// TestStats asks a server that does not answer for more than there is room for: who finds none is answered at once and counted, all others by
// their deadline, and nothing stays when the client has ended its calls.
func TestStats(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("alone=%t", alone), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const room, beyond = 100, 30
				client := hanging{closed: make(chan struct{})}
				s, err := New(client, Words{}, ratelimit.FailClosed, Options{Alone: alone})
				if err != nil {
					t.Fatal(err)
				}
				want := func(want Stats) {
					t.Helper()
					want.MaxWaiting, want.MaxHung = maxQueue, maxDeserted
					if got := s.Stats(); got != want {
						t.Errorf("%+v, want %+v", got, want)
					}
				}
				var wg sync.WaitGroup
				var atOnce, late atomic.Int64
				ask := func(n int) {
					for range n {
						wg.Go(func() {
							start := time.Now()
							_, err := s.Take(t.Context(), demandOn("key", ratelimit.Take, 1))
							switch took := time.Since(start); {
							case !errors.Is(err, ratelimit.ErrUnavailable) || took > defaultTimeout:
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
				want(Stats{})
				const full = 1 << 7 // places are taken by doubling
				s.lanes.shared.waiting.Add(maxQueue - full)
				s.calls.deserted.Add(maxDeserted - room)
				if alone {
					ask(room)
					wg.Wait()
					ask(beyond)
					want(Stats{Waiting: maxQueue - full, Hung: maxDeserted, Refused: beyond})
				} else {
					ask(maxFlights + full)
					want(Stats{Waiting: maxQueue, Hung: maxDeserted - room})
					ask(beyond)
					want(Stats{Waiting: maxQueue, Hung: maxDeserted - room, Refused: beyond})
				}
				wg.Wait()
				if atOnce.Load() != beyond {
					t.Errorf("%d answered at once and %d by their deadline, want %d at once", atOnce.Load(), late.Load(), beyond)
				}
				close(client.closed)
				synctest.Wait()
				want(Stats{Waiting: maxQueue - full, Hung: maxDeserted - room, Refused: beyond})
			})
		})
	}
}
