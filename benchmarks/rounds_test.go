package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name   string
		values []float64
		want   summary
	}{
		{"odd", []float64{9, 1, 4}, summary{4, 1, 9, 3}},
		{"even", []float64{8, 2, 4, 6}, summary{5, 2, 8, 4}},
		{"one", []float64{3}, summary{3, 3, 3, 1}},
		{"missing rounds", []float64{nan, 7, nan, 5}, summary{6, 5, 7, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.values)
			if got := summarize(tt.values); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if slices.Compare(before, tt.values) != 0 {
				t.Errorf("summarize changed the values to %v", tt.values)
			}
		})
	}
	if got := summarize([]float64{nan}); !math.IsNaN(got.Median) || got.N != 0 {
		t.Errorf("without values: got %+v, want NaN", got)
	}
}

// The quotient of the medians would be 1, but within each round except the last it is 2.
func TestQuotientsAreTakenWithinARound(t *testing.T) {
	ours := []float64{2, 20, 200, 7}
	reference := []float64{1, 10, 100, 0}
	got := quotients(ours, reference)
	if want := []float64{2, 2, 2}; !slices.Equal(got[:3], want) || !math.IsNaN(got[3]) {
		t.Errorf("got %v, want %v and NaN", got, want)
	}
	if got := summarize(got); got.Median != 2 || got.Min != 2 || got.Max != 2 || got.N != 3 {
		t.Errorf("got summary %+v, want 2 in 3 rounds", got)
	}
	if got := quotients([]float64{1, 2}, []float64{math.NaN(), 1}); !math.IsNaN(got[0]) ||
		got[1] != 2 {
		t.Errorf("got %v, want NaN and 2", got)
	}
}

func TestRunMeasuresAllEntriesEveryRound(t *testing.T) {
	var order []string
	s := subject{
		name: "time", metrics: []metric{{Name: "ns"}},
		cases: []testCase{{name: "hot", entries: []string{"a", "b", "c"},
			measure: func(_ context.Context, entry string) ([]float64, error) {
				order = append(order, entry)
				if entry == "b" && len(order) > 3 {
					return nil, errors.New("failed")
				}
				return []float64{float64(len(order))}, nil
			}}},
	}
	once := s
	once.name, once.rounds = "once", 1
	r := newResults()
	if err := r.run(t.Context(), []subject{s}, 2, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "c", "b", "c", "a"}; !slices.Equal(order, want) {
		t.Errorf("got order %v, want %v", order, want)
	}
	if got, want := r.values[cell{"time", "ns", "hot", "a"}],
		[]float64{1, 6}; !slices.Equal(got, want) {
		t.Errorf("a: got %v, want %v", got, want)
	}
	if got := r.values[cell{"time", "ns", "hot", "b"}]; !slices.Equal(got, []float64{2}) ||
		len(r.errors) != 1 {
		t.Errorf("b: got %v with errors %q, want only the first round and one error", got, r.errors)
	}
	if err := r.run(t.Context(), []subject{once}, 2, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if got := r.values[cell{"once", "ns", "hot", "c"}]; len(got) != 1 {
		t.Errorf("a subject of one round: got %v, want one value", got)
	}
	rare := s
	rare.name, rare.cases = "rare", []testCase{s.cases[0]}
	rare.cases[0].rounds = 1
	if err := r.run(t.Context(), []subject{rare}, 2, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if got := r.values[cell{"rare", "ns", "hot", "c"}]; len(got) != 1 {
		t.Errorf("a case of one round: got %v, want one value", got)
	}
}

func TestRunStopsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	s := subject{name: "time", metrics: []metric{{Name: "ns"}},
		cases: []testCase{{name: "hot", entries: []string{"a", "b"},
			measure: func(context.Context, string) ([]float64, error) {
				calls++
				cancel()
				return []float64{1}, nil
			}}}}
	if err := newResults().run(ctx, []subject{s}, 5, func(string) {}); !errors.Is(err,
		context.Canceled) || calls != 1 {
		t.Errorf("got %v after %d calls, want Canceled after 1", err, calls)
	}
}
