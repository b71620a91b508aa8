package memorystore

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestMoreLimitsThanAreKnown uses more limits on a key than its shard remembers algorithms: each
// keeps a history of its own and its own Max, in single demands and together.
func TestMoreLimitsThanAreKnown(t *testing.T) {
	s := open(t, nil)
	const limits = 7
	var ds []driver.Demand
	for i := range limits {
		limit := driver.Limit{Name: strconv.Itoa(i), Max: int64(10 + i), Window: time.Hour}
		ds = append(ds, driver.Demand{Key: "k", Algorithm: algorithm.SlidingLog(limit), N: 1})
	}
	out := make([]driver.Result, limits)
	for round := range int64(5) {
		for i, d := range ds {
			if got, want := must(t, s, d, true).Remaining, 10+int64(i)-2*round-1; got != want {
				t.Fatalf("limit %d: %d units remain, want %d", i, got, want)
			}
		}
		if err := s.TakeAll(t.Context(), ds, out); err != nil {
			t.Fatal(err)
		}
		for i, res := range out {
			if want := 10 + int64(i) - 2*round - 2; !res.Allowed || res.Remaining != want {
				t.Fatalf("limit %d: %+v, want %d units to remain", i, res, want)
			}
		}
	}
	if n := s.Stats().Keys; n != limits {
		t.Errorf("%d states, want %d", n, limits)
	}
}

// TestMaxOfKnownLimits: a demand of more than Max is an error, however the shard came to know the
// algorithm: by its first state, or by that of another limit of the same name.
func TestMaxOfKnownLimits(t *testing.T) {
	s := open(t, nil)
	for i := range int64(9) {
		limit := driver.Limit{Name: "limit", Max: 20 - i, Window: time.Hour}
		d := driver.Demand{Key: "k", Algorithm: algorithm.SlidingLog(limit), N: 1}
		for range 2 {
			must(t, s, d, true)
		}
		d.N = limit.Max + 1
		if _, err := s.Take(t.Context(), d); !errors.Is(err, driver.ErrExceedsLimit) {
			t.Errorf("%d units of %d: error %v, want ErrExceedsLimit", d.N, limit.Max, err)
		}
		if i == 4 { // there is no room for more
			must(t, s, driver.Demand{Key: "k", Algorithm: d.Algorithm, Op: driver.OpReset}, true)
		}
	}
}
