package sql

import (
	"context"
	"maps"
	"testing"
	"time"

	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/internal/testkit/planted"
)

// TestConformance runs the public suite.
func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		except := map[string]string{}
		if k.layers {
			except = maps.Clone(clients.ExceptInLayers)
		}
		// These make as many calls as they can in some seconds.
		if k.image != "" && !k.rare && !depth.Full {
			for _, rule := range []string{"identity/many-keys", "identity/hashed-keys",
				"concurrency/many-calls", "takeall/storm-of-hundreds",
				"takeall-keys/storm-of-hundreds"} {
				except[rule] = "tried on SQLite, on other versions, and at full depth"
			}
		}
		conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
			db := k.newDatabase(t)
			opts := &sqlstore.Options{Now: now, Timeout: 4 * time.Second, SweepEvery: -1}
			if k.many || planted.Running() && k.dialect != sqlstore.SQLite {
				opts.Transactions = 8 // so that they meet
			}
			s := db.newStore(t, opts)
			h := conformance.Harness{
				Store:  s,
				Second: func(t testing.TB) driver.Store { return db.newStore(t, opts) },
				Writes: db.writes,
				Close:  s.Close,
				Freeze: db.freeze,
				Sweep: func() error {
					_, err := s.Sweep(context.Background())
					return err
				},
			}
			if db.proxy != nil {
				h.LoseAnswer = db.loseAnswer
			}
			if k.layers {
				second := h.Second
				h.Store = clients.InLayers(t, s)
				h.Second = func(t testing.TB) driver.Store { return clients.InLayers(t, second(t)) }
			}
			return h
		}, &conformance.Options{CheckHistory: linear.Check, Except: except})
	})
}
