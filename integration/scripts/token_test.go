package scripts

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// forgedToken returns a token of n claims that no reservation has made.
func forgedToken(n int, limit, algorithm string) string {
	claims := make([]string, n)
	for i := range claims {
		claims[i] = fmt.Sprintf(`{"k":"%s","l":["%s"],"a":["%s"]}`,
			base64.StdEncoding.EncodeToString(fmt.Append(nil, i)), limit, algorithm)
	}
	return base64.RawURLEncoding.EncodeToString(
		[]byte(`{"v":2,"i":7,"c":[` + strings.Join(claims, ",") + `]}`))
}

// TestGuardForgedTokens bounds what tokens that a stranger makes up cost a server: nothing if they
// have more limits than a call may have, and otherwise two commands for each of 256 limits.
func TestGuardForgedTokens(t *testing.T) {
	const tokens = 20
	budget := algorithm.Budget(algorithm.SlidingLog(driver.PerDay("tokens", 100)))
	eachGuarded(t, func(t *testing.T, g *guarded) {
		store, err := redisstore.New(g.client, &serverstore.Options{Timeout: clients.Patient})
		if err != nil {
			t.Fatal(err)
		}
		l, err := ratelimit.New(store, budget)
		if err != nil {
			t.Fatal(err)
		}
		everybody := g.limiter(t, driver.PerDay("everybody", 1_000_000), nil)
		for _, n := range []int{driver.MaxDemands, driver.MaxDemands + 1, 17_000} {
			text := forgedToken(n, "tokens", budget.Name())
			settle := func() {
				r, err := ratelimit.Resume(text, l)
				many := n > driver.MaxDemands
				if many != errors.Is(err, ratelimit.ErrInvalidToken) {
					t.Errorf("a token of %d claims: %v", n, err)
				}
				if err != nil {
					return
				}
				if err := r.Cancel(t.Context()); err != nil {
					t.Errorf("a token of %d claims is not settled: %v", n, err)
				}
			}
			settle() // loads the script
			g.calls(t)
			settle()
			ran := 0
			for _, count := range strings.Split(g.calls(t), ", ") {
				var command string
				var times int
				fmt.Sscan(count, &command, &times)
				ran += times
			}
			most := 2*n + 2
			if n > driver.MaxDemands {
				most = 0
			}
			if ran > most {
				t.Errorf("a token of %d claims runs %d commands, want %d at most", n, ran, most)
			}

			var waits []time.Duration
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					began := time.Now()
					if _, err := everybody.Allow(t.Context(), "k"); err != nil {
						t.Error(err)
					}
					waits = append(waits, time.Since(began))
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
				}
			})
			before := g.info(t, "commandstats")["cmdstat_evalsha"]
			for range tokens {
				settle()
			}
			after := g.info(t, "commandstats")["cmdstat_evalsha"]
			close(stop)
			wg.Wait()
			slices.Sort(waits)
			servers.Measured("%s: %d tokens of %d claims, %d bytes: %d commands each, evalsha %q, "+
				"then %q; %d calls of others take %v at the median, %v at most", t.Name(), tokens,
				n, len(text), ran, before, after, len(waits), waits[len(waits)/2],
				waits[len(waits)-1])
		}
	})
}
