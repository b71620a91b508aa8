package algorithms

import (
	"errors"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

func TestNew(t *testing.T) {
	limit := driver.PerHour("requests", 7)
	for _, name := range OfService() {
		a, err := New(name, limit, Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		got := a.Limit()
		if got.Name != limit.Name || name != Block && got.Max != 7 || a.Validate() != nil {
			t.Errorf("%s has the limit %v", name, got)
		}
		held, err := New(name, limit, Options{Holds: 20 * time.Second})
		if name == Block {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("a block with holds: %v, want ErrInvalid", err)
			}
			continue
		}
		if h, ok := held.(driver.Holder); !ok || h.HoldTimeout() != 20*time.Second {
			t.Errorf("%s does not hold for 20s: %v, %v", name, held, err)
		}
	}
	if a, _ := New(Block, limit, Options{}); a.Limit().Window != time.Hour {
		t.Errorf("the longest block is %v, want 1h", a.Limit().Window)
	}
	if a, _ := New(InFlight, limit, Options{}); a.(driver.Holder).HoldTimeout() != time.Minute {
		t.Error("calls in flight are not held for a minute by default")
	}
	const day = 24 * time.Hour
	for want, o := range map[driver.Algorithm]struct {
		name string
		Options
	}{
		algorithm.Weekly("requests", limit.Max, time.Sunday): {Week, Options{Starts: 7}},
		algorithm.Weekly("requests", limit.Max, time.Monday): {Week, Options{}},
		algorithm.Monthly("requests", limit.Max).WithDay(31): {Month, Options{Starts: 31}},
		algorithm.Quarterly("requests", limit.Max).WithOffset(-day): {Quarter,
			Options{Offset: -day}},
		algorithm.FixedWindow(limit).WithOffset(time.Minute): {"fixed",
			Options{Offset: time.Minute, Starts: 3}},
	} {
		if a, err := New(o.name, limit, o.Options); a != want || err != nil {
			t.Errorf("%+v: %v, %v, want %v", o, a, err, want)
		}
	}
	for _, b := range []struct{ window, debt, want time.Duration }{
		{time.Minute, time.Minute, time.Minute}, {day, 3 * day, 3 * day},
	} {
		limit := driver.Limit{Name: "requests", Max: 7, Window: b.window}
		a, err := New(Bucket, limit, Options{Debt: b.debt})
		if err != nil || a.(algorithm.Bucket).Debt() != b.want {
			t.Errorf("debt %v of a bucket of %v: %v, %v", b.debt, b.window, a, err)
		}
		held, err := New(Bucket, limit, Options{Holds: time.Minute, Debt: b.debt})
		if err != nil || held.(algorithm.Held).Inside() != a {
			t.Errorf("inside a bucket with holds is %v, not %v; %v", held, a, err)
		}
	}
	wrong := []struct {
		name  string
		limit driver.Limit
		Options
	}{
		{"Log", limit, Options{}}, {"", limit, Options{}}, {"gcra", limit, Options{}},
		{"log", driver.Limit{Name: "requests", Window: time.Hour}, Options{}},
		{"bucket", driver.Limit{Name: "two words", Max: 1, Window: time.Hour}, Options{}},
		{"fixed", limit, Options{Holds: time.Millisecond}},
		{"counter", limit, Options{Holds: -time.Second}},
		{InFlight, limit, Options{Holds: 365 * day}}, {Bucket, limit, Options{Debt: time.Hour - 1}},
		{Bucket, limit, Options{Debt: -time.Hour}}, {Week, limit, Options{Starts: 8}},
		{Week, limit, Options{Offset: 7 * day}}, {Month, limit, Options{Starts: 32}},
		{Quarter, limit, Options{Starts: -1}},
	}
	for _, w := range wrong {
		if a, err := New(w.name, w.limit, w.Options); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("New(%q, %v, %v) = %v, %v, want ErrInvalid", w.name, w.limit, w.Options, a,
				err)
		}
	}
}
