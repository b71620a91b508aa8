package conformance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestConformanceHooks runs the cases of the suite that need hooks between a store and its server:
// lost answers, a frozen server, a wrong clock. TestConformance runs the others. Each client has
// its own server.
func TestConformanceHooks(t *testing.T) {
	t.Parallel()
	servers.EachClocked(t, func(t *testing.T, image string) {
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			t.Parallel() // mostly waits
			s := servers.StartClocked(t, image)
			skew := func(ahead time.Duration) error {
				return s.StepClock(context.Background(), ahead)
			}
			except := make(map[string]string)
			for group := range strings.FieldsSeq("identity step op result window takeall " +
				"takeall-keys concurrency algorithm hold settle") {
				except[group] = "TestConformance tries it"
			}
			conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
				opts := &serverstore.Options{Prefix: servers.UniquePrefix(),
					Timeout: 3 * time.Second, Now: now}
				proxy := servers.Proxy(t, s.Addr)
				client := lib.Client(t,
					clients.Dialing{Addrs: []string{proxy.Addr()}, Patient: true})
				return conformance.Harness{
					Store: client.NewStore(t, opts),
					Second: func(t testing.TB) driver.Store {
						return lib.Client(t, clients.Dialing{Addrs: []string{s.Addr},
							Patient: true}).NewStore(t, opts)
					},
					Close:        client.CloseAll,
					ClosesClient: true,
					LoseAnswer: func() error {
						proxy.Set(faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: "evalsha",
							Times: 1})
						return nil
					},
					Freeze: func() (func() error, error) {
						proxy.Set(faultproxy.Fault{Kind: faultproxy.Freeze})
						return func() error { proxy.Heal(); return nil }, nil
					},
					SkewClock: skew,
				}
			}, &conformance.Options{Except: except})
		})
	})
}
