package scripts

import (
	"fmt"
	"slices"
	"testing"

	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
)

// guardGroups are the commands of a decision under three limits, of which some are used up: each
// state is read once. A large log also has its length compared before it is written, and by the
// peek that answers for a limit that would have admitted, or that follows the first refusal.
var guardGroups = []struct {
	name    string
	records int64 // in each log
	full    []int // the limits that are used up
	want    string
}{
	{"small, admitted", 5, nil, "evalsha 1, getrange 3, set 3, time 1"},
	{"small, refused by the first", 5, []int{0}, "evalsha 1, getrange 3, time 1"},
	{"small, refused by the last", 5, []int{2}, "evalsha 1, getrange 3, time 1"},
	{"large, admitted", 100, nil, "evalsha 1, getrange 3, setrange 3, strlen 3, time 1"},
	{"large, refused by the first", 100, []int{0}, "evalsha 1, getrange 3, strlen 2, time 1"},
	{"large, refused by the last", 100, []int{2}, "evalsha 1, getrange 3, strlen 2, time 1"},
	{"large, refused by all", 100, []int{0, 1, 2}, "evalsha 1, getrange 3, strlen 2, time 1"},
}

// TestGuardGroups counts the commands of a decision under three limits.
func TestGuardGroups(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		store, err := redisstore.New(g.client, &serverstore.Options{Timeout: clients.Patient})
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range guardGroups {
			ds := make([]driver.Demand, 3)
			for i := range ds {
				limit := driver.PerDay(fmt.Sprint("limit", i), 100_000)
				if slices.Contains(tt.full, i) {
					limit.Max = tt.records
				}
				ds[i] = driver.Demand{Key: tt.name, Algorithm: algorithm.SlidingLog(limit), N: 1}
				for range tt.records {
					if res := clients.Ask(t, store, ds[i]); !res.Allowed {
						t.Fatalf("%s: got %+v, want an admission", tt.name, res)
					}
				}
			}
			decide := func() {
				t.Helper()
				results := make([]driver.Result, len(ds))
				if err := store.TakeAll(t.Context(), ds, results); err != nil {
					t.Fatal(err)
				}
				for i, res := range results {
					if res.Allowed == slices.Contains(tt.full, i) {
						t.Fatalf("%s: got %+v", tt.name, results)
					}
				}
			}
			decide() // loads the script
			g.calls(t)
			decide()
			if got := g.calls(t); got != tt.want {
				t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
			}
		}
	})
}
