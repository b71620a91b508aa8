package budgetmodel

import (
	"context"
	"testing"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Charged returns how many units of key are charged to a limit, even if they exceed its Max.
func Charged(t testing.TB, store driver.Store, limit driver.Limit, key string) int64 {
	t.Helper()
	limit.Max = driver.MaxUnits
	res, err := store.Take(context.Background(), driver.Demand{
		Key: key, Algorithm: algorithm.SlidingLog(limit), Op: driver.OpPeek, N: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit.Max - res.Remaining
}

// Check fails t unless store, under each limit, holds at least the certain units of books and at
// most the possible ones.
func (s *Storm) Check(t testing.TB, store driver.Store, books []Books) {
	t.Helper()
	for i, l := range s.Clients[0] {
		for _, limit := range l.Limits() {
			charged := Charged(t, store, limit, s.Key)
			if charged < books[i].Certain || charged > books[i].Possible {
				t.Errorf("seed %d: %d units of %s are charged; want %d to %d",
					s.Seed, charged, limit.Name, books[i].Certain, books[i].Possible)
			}
		}
	}
}
