package conformance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestForeignWrites: the cases that count writes do not fail while another program writes to the
// same server, all the time or now and then.
func TestForeignWrites(t *testing.T) {
	except := make(map[string]string)
	for name := range strings.FieldsSeq("identity op result window hold settle clock expiry " +
		"takeall takeall-keys lost concurrency algorithm step/results step/state " +
		"step/peeks-leave-no-trace step/refusals-leave-no-trace step/refusals-are-results " +
		"step/two-clients step/scripts-dropped step/own-bytes step/large-state " +
		"errors/validation errors/ended-context errors/ending-context errors/closed " +
		"errors/before-io errors/no-script errors/corrupt-state least") {
		except[name] = "it does not count writes"
	}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		if tgt.Name != servers.Newest() {
			t.Skip("the newest server is enough")
		}
		for _, pause := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
			t.Run(pause.String(), func(t *testing.T) {
				stop := writeOften(t, tgt.Client(t), pause)
				defer stop()
				control, lib := tgt.Client(t), clients.Libraries[0]
				conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
					opts := &serverstore.Options{Prefix: servers.UniquePrefix(), Now: now,
						Timeout: clients.Patient}
					return conformance.Harness{
						Store: lib.Client(t, clients.To(tgt)).NewStore(t, opts),
						Writes: func() (int64, error) {
							return servers.CountWrites(context.Background(), control)
						},
					}
				}, &conformance.Options{Except: except})
			})
		}
	})
}

// writeOften sets a key, with a pause after each time, until stop is called.
func writeOften(t *testing.T, c redis.UniversalClient, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := c.Set(ctx, "of another program", 1, 0).Err(); err != nil && ctx.Err() == nil {
				t.Errorf("SET: %v", err)
				return
			}
			time.Sleep(pause)
		}
	}()
	return func() { cancel(); <-done }
}
