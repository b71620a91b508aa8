package main

import (
	"context"
	"errors"
	"math"
	"runtime/metrics"
	"testing"
	"time"
)

func TestLongestPause(t *testing.T) {
	h := func(counts ...uint64) *metrics.Float64Histogram {
		return &metrics.Float64Histogram{Counts: counts,
			Buckets: []float64{0, 1e-6, 1e-5, math.Inf(1)}}
	}
	for _, tt := range []struct {
		name          string
		before, after *metrics.Float64Histogram
		want          float64
	}{
		{"none", h(1, 2, 3), h(1, 2, 3), 0},
		{"short", h(1, 2, 3), h(2, 2, 3), 1},
		{"short and middling", h(1, 2, 3), h(9, 3, 3), 10},
		{"beyond the last bound", h(1, 2, 3), h(1, 2, 4), 10},
	} {
		if got := longestPause(tt.before, tt.after); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%s: got %v µs, want %v", tt.name, got, tt.want)
		}
	}
	if got := longestPause(nil, h(1, 1, 1)); !math.IsNaN(got) {
		t.Errorf("unknown: got %v, want NaN", got)
	}
}

// TestProbe: probe finds a slow decision, and continues as long as more returns true.
func TestProbe(t *testing.T) {
	const held = 30 * time.Millisecond
	calls, asked := 0, 0
	d := decider{allow: func(context.Context, string) (bool, error) {
		if calls++; calls == 150 {
			time.Sleep(held)
		}
		return true, nil
	}}
	begin := time.Now()
	longest, err := probe(t.Context(), d, []string{"a", "b"}, func() bool {
		asked++
		return time.Since(begin) < 2*probeTime
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); longest < float64(held.Microseconds()) || took < 2*probeTime ||
		asked != calls/100+1 {
		t.Errorf("got longest %v µs of %d calls in %v, with %d calls of more; want %v or longer",
			longest, calls, took, asked, held)
	}
}

// TestProbeFails: probe returns the error of a failed decision.
func TestProbeFails(t *testing.T) {
	failed := errors.New("failed")
	d := decider{allow: func(context.Context, string) (bool, error) { return false, failed }}
	if _, err := probe(t.Context(), d, []string{"a"},
		func() bool { return true }); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
}

// TestCrowdIsForgotten: all keys of a store expire at once and are dropped.
func TestCrowdIsForgotten(t *testing.T) {
	values, err := scaleOf(t.Context(), ours, 5_000)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range scale(true).metrics {
		if math.IsNaN(values[i]) || values[i] < 0 {
			t.Errorf("%s: got %v, want a measured value", m.Name, values[i])
		}
	}
}
