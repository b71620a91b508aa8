package main

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample returns two rounds of two entries, of which "slow" lacks the second column.
func sample() (*results, []subject) {
	r := newResults()
	for c, values := range map[cell][]float64{
		{"commands", "time", "100", zset}:      {10, 20},
		{"commands", "time", "100", ours}:      {5, 30},
		{"commands", "time", "1000", zset}:     {1234.5, math.NaN()},
		{"commands", "admitted", "100", ours}:  {1, 1},
		{"commands", "admitted", "100", zset}:  {1, 1},
		{"commands", "admitted", "1000", zset}: {1, 1},
	} {
		for round, v := range values {
			r.add(c, round, v)
		}
	}
	entries := []string{zset, ours}
	return r, []subject{{
		name: "commands", title: "Cost", reference: zset,
		metrics: []metric{{"time", "µs", "A note.", false}, {"admitted", "share", "", true}, {"never", "measured", "", false}},
		cases:   []testCase{{name: "100", entries: entries}, {name: "1000", entries: entries}},
	}}
}

func TestMarkdown(t *testing.T) {
	r, subjects := sample()
	rep := report{Tables: r.tables(subjects), Rounds: 2, Took: time.Minute, Failures: []string{"commands, 1000, ours: broken"},
		Entries: map[string][]about{"server": {{zset, "example.com/zset", "MIT", "sorted set"}}}, Versions: map[string]string{"example.com/zset": "v1.2.3"},
		Targets: []verdict{{What: "cost", Measured: 1, Range: [2]number{0.5, 1.5}, Target: "≤ 0.70"}, {What: "records", Measured: 3, Range: [2]number{3, 3}, Target: "≤ 4", Holds: true}}}
	var b strings.Builder
	if err := rep.writeMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, want := range []string{
		"## Cost",
		"time, µs. A note.",
		"| time | 100 | 1000 |",
		"|---|---|---|",
		"| zset | 15 [10–20] | 1,234 |",
		"| ratelimit | 17.5 [5–30] **×1 [0.50–1.50]** | – |",
		"| ratelimit | 1 | – |",
		"| cost | 1 [0.50–1.50] | ≤ 0.70 | **no** |",
		"| records | 3 | ≤ 4 | yes |",
		"| zset | server | example.com/zset | v1.2.3 | MIT | sorted set |",
		"- commands, 1000, ours: broken",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q", want)
		}
	}
	if strings.Contains(b.String(), "never") {
		t.Error("a metric without values has a table")
	}
	if t.Failed() {
		t.Log(b.String())
	}
}

func TestJSON(t *testing.T) {
	r, subjects := sample()
	rep := report{Tables: r.tables(subjects)}
	var b strings.Builder
	if err := rep.writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tables []struct {
			Metric struct{ Name string }
			Rows   []struct {
				Entry string
				Cells []*struct {
					Median float64
					Rounds []*float64
					Ratio  *struct{ Median, Min, Max float64 }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	reference, own := got.Tables[0].Rows[0], got.Tables[0].Rows[1]
	if rounds := reference.Cells[1].Rounds; len(rounds) != 2 || *rounds[0] != 1234.5 || rounds[1] != nil {
		t.Errorf("a round without a value is not null: %v", rounds)
	}
	if reference.Cells[0].Ratio != nil {
		t.Error("the reference has a quotient by itself")
	}
	if ratio := own.Cells[0].Ratio; ratio == nil || ratio.Median != 1 || ratio.Min != 0.5 || ratio.Max != 1.5 || own.Cells[0].Median != 17.5 {
		t.Errorf("ours is %+v, want 17.5 and the quotient 1 from 0.5 to 1.5", own.Cells[0])
	}
	if own.Cells[1] != nil {
		t.Error("a cell that was not measured is there")
	}
	if got.Tables[1].Rows[1].Cells[0].Ratio != nil {
		t.Error("a metric that is no cost has a quotient")
	}
}

func TestJudge(t *testing.T) {
	r, _ := sample()
	at := func(entry string) cell { return cell{"commands", "time", "100", entry} }
	over := at(zset)
	got := r.judge([]target{
		{what: "quotient held", value: at(ours), over: &over, atMost: 1},
		{what: "quotient missed", value: at(ours), over: &over, atMost: 0.99},
		{what: "value held", value: at(ours), atMost: 17.5},
		{what: "at least", value: at(ours), over: &over, least: 1.01},
		{what: "not measured", value: cell{"commands", "time", "1000", ours}, atMost: 1},
	})
	var summaries []string
	for _, v := range got {
		summaries = append(summaries, v.What+" "+v.Measured.String()+" "+v.Target+" "+map[bool]string{true: "yes", false: "no"}[v.Holds])
	}
	want := []string{"quotient held 1 ≤ 1 yes", "quotient missed 1 ≤ 0.99 no", "value held 17.5 ≤ 17.5 yes", "at least 1 ≥ 1.01 no"}
	if !slices.Equal(summaries, want) {
		t.Errorf("got %q, want %q", summaries, want)
	}
}

// Each target names a cell that the full run measures.
func TestTargetsAreMeasured(t *testing.T) {
	var srv *server
	measured := make(map[cell]bool)
	for _, s := range allSubjects(&srv, false) {
		for _, c := range s.cases {
			for _, m := range s.metrics {
				for _, e := range c.entries {
					measured[cell{s.name, m.Name, c.name, e}] = true
				}
			}
		}
	}
	for _, target := range targets {
		if !measured[target.value] {
			t.Errorf("%s: nothing measures %+v", target.what, target.value)
		}
		if target.over != nil && !measured[*target.over] {
			t.Errorf("%s: nothing measures %+v", target.what, *target.over)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[number]string{
		0: "0", 1: "1", 0.0123: "0.012", 0.1: "0.10", 0.666: "0.67", 12.34: "12.3", 123.4: "123", 1234567.8: "1,234,568", -1234: "-1,234",
		number(math.NaN()): "–",
	} {
		if got := v.String(); got != want {
			t.Errorf("%v is written %q, want %q", float64(v), got, want)
		}
	}
}
