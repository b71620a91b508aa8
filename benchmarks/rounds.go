package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// A metric is one number that a measurement yields, and one table of the report.
type metric struct {
	Name string // targets refer to it
	Unit string
	Note string // explains what is measured; may be empty
	// Alone means that the metric has no quotients, because it is not a cost.
	Alone bool `json:"-"`
}

// A subject is a set of measurements with the same metrics: a case is a column of its tables, an
// entry a row.
type subject struct {
	name      string // what -run selects
	title     string
	reference string // the entry whose value divides the others' in the same round; empty for none
	metrics   []metric
	cases     []testCase
	rounds    int  // 0 means the number of rounds of the run
	onServer  bool // whether it needs a server
}

// A testCase measures its entries one by one. measure returns one value for each metric of the
// subject, NaN where it has none.
type testCase struct {
	name    string
	entries []string
	measure func(ctx context.Context, entry string) ([]float64, error)
	rounds  int // 0 means the number of the subject
}

// A cell names what is measured once a round.
type cell struct {
	Subject, Metric, Case, Entry string
}

// results holds the values of each cell by round, NaN where a round has none.
type results struct {
	values map[cell][]float64
	errors []string
}

func newResults() *results { return &results{values: make(map[cell][]float64)} }

func (r *results) add(c cell, round int, value float64) {
	vs := r.values[c]
	for len(vs) <= round {
		vs = append(vs, math.NaN())
	}
	vs[round] = value
	r.values[c] = vs
}

// run measures the rounds in turn. A round measures every entry of every case, starting at another
// entry than the previous round. An entry that fails is added to r.errors and has no value in that
// round. The returned error is that of ctx.
func (r *results) run(
	ctx context.Context, subjects []subject, rounds int, progress func(string),
) error {
	for round := range rounds {
		for _, s := range subjects {
			for _, c := range s.cases {
				if last := cmp.Or(c.rounds, s.rounds, rounds); round >= last {
					continue
				}
				progress(fmt.Sprintf("round %d of %d: %s, %s", round+1, rounds, s.name, c.name))
				for i := range c.entries {
					entry := c.entries[(i+round)%len(c.entries)]
					values, err := c.measure(ctx, entry)
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if err != nil {
						r.errors = append(r.errors, fmt.Sprintf("%s, %s, %s, round %d: %v",
							s.name, c.name, entry, round+1, err))
						continue
					}
					for j, m := range s.metrics {
						r.add(cell{s.name, m.Name, c.name, entry}, round, values[j])
					}
				}
			}
		}
	}
	return nil
}

// A summary is the median and range of the values except NaN. All are NaN if there are none.
type summary struct {
	Median, Min, Max float64
	N                int
}

func summarize(values []float64) summary {
	vs := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(vs) == 0 {
		nan := math.NaN()
		return summary{Median: nan, Min: nan, Max: nan}
	}
	slices.Sort(vs)
	mid := len(vs) / 2
	median := vs[mid]
	if len(vs)%2 == 0 {
		median = (vs[mid-1] + vs[mid]) / 2
	}
	return summary{Median: median, Min: vs[0], Max: vs[len(vs)-1], N: len(vs)}
}

// quotients divides round by round. If one of the two values is missing or over is 0, the quotient
// is NaN.
func quotients(values, over []float64) []float64 {
	qs := make([]float64, min(len(values), len(over)))
	for i := range qs {
		qs[i] = math.NaN()
		if over[i] != 0 {
			qs[i] = values[i] / over[i]
		}
	}
	return qs
}
