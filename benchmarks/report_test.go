package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample returns two rounds of two entries. The second entry has no time in the second column.
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
		metrics: []metric{{"time", "µs", "A note.", false}, {"admitted", "share", "", true},
			{"never", "measured", "", false}},
		cases: []testCase{{name: "100", entries: entries}, {name: "1000", entries: entries}},
	}}
}

func sampleReport() *report {
	r, subjects := sample()
	return &report{
		Started: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Took: time.Minute,
		Rounds: 2, Quick: true,
		Machine: []fact{{"Go", "go1.26 linux/amd64"}}, Tables: r.tables(subjects),
		Failures: []string{"commands, 1000, ours: broken"},
		Entries: map[string][]about{serverEntries: {{zset, "example.com/zset", "MIT",
			"sorted set"}}},
		Versions: map[string]string{"example.com/zset": "v1.2.3"},
		Targets: []verdict{
			{Subject: "commands", What: "cost", Measured: 1, Range: [2]number{0.5, 1.5},
				Target: "≤ 0.70"},
			{Subject: "commands", What: "records", Measured: 3, Range: [2]number{3, 3},
				Target: "≤ 4", Holds: true},
		},
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	if err := sampleReport().writeMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, want := range []string{
		"## Cost",
		"**time**, µs. A note.",
		"| time | 100 | 1000 |",
		"|---|---|---|",
		"| zset | 15 [10–20] | 1,234 |",
		"| ratelimit | 17.5 [5–30] **×1 [0.50–1.50]** | – |",
		"**admitted**, share. All values are 1.",
		"1 of 2 targets hold. Each subject ends with its targets. These are missed:",
		"| cost | 1 [0.50–1.50] | ≤ 0.70 | – |",
		"| cost | 1 [0.50–1.50] | ≤ 0.70 | **missed** |",
		"| records | 3 | ≤ 4 | holds |",
		"| zset | server | example.com/zset | v1.2.3 | MIT | sorted set |",
		"- commands, 1000, ours: broken",
		"- Go: go1.26 linux/amd64",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q", want)
		}
	}
	if strings.Contains(b.String(), "never") {
		t.Error("a metric without values has a table, want none")
	}
	if !strings.Contains(b.String(), "quick run") {
		t.Error("the page does not say that the run was quick")
	}
	if t.Failed() {
		t.Log(b.String())
	}
}

// TestJSON: a report that was read from JSON is written as the measured one.
func TestJSON(t *testing.T) {
	rep := sampleReport()
	rep.Tables[0].Rows[0].Cells[0].Ratio = &ratio{round5(1.0 / 3), 1e-7, number(math.NaN())}
	name := filepath.Join(t.TempDir(), "report.json")
	if err := writeFile(name, rep.writeJSON); err != nil {
		t.Fatal(err)
	}
	read, err := readReport(name)
	if err != nil {
		t.Fatal(err)
	}
	var want, got strings.Builder
	if err := errors.Join(rep.writeMarkdown(&want), read.writeMarkdown(&got)); err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want.String())
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	line := `{"Entry":"ratelimit","Cells":[[17.5,5,30,2,1,0.5,1.5],null]}`
	if !strings.Contains(string(text), "\n"+line) {
		t.Errorf("no line begins with %s:\n%s", line, text)
	}
	for _, bad := range []string{`{"Tables":[{"Rows":[{"Cells":[[1,2]]}]}]}`, `{"Unknown":1}`} {
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readReport(name); err == nil {
			t.Errorf("no error for %s", bad)
		}
	}
}

func TestComparison(t *testing.T) {
	exact := func(name, entry string, v float64) table {
		return table{Subject: "exact-redis",
			Metric: metric{Name: name}, Columns: []string{"aimed and random"},
			Rows: []row{{entry, []*value{{Median: number(v)}}}}}
	}
	rep := sampleReport()
	rep.Tables[0].Columns[0] = "100 admitted"
	rep.Tables = append(rep.Tables, exact("worst", zset, 1.9), exact("worst", ours, 1),
		exact("worst", oursRueidis, 1), exact("worst", cachingRueidis, 1),
		exact("wrong", zset, 0.26))
	rep.Entries[serverEntries] = append(rep.Entries[serverEntries],
		about{ours, oursName, "MIT", "exact log"}, about{zsetRetry, "", "", ""},
		about{oursRueidis, oursName, "MIT", "the same"},
		about{cachingRueidis, oursName, "MIT", "cached"})
	const rest = "before\n" + beginComparison + "%s" + endComparison + "after\n"
	got, err := rep.insertComparison(fmt.Sprintf(rest, "old\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(rest, rep.comparison()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	lines := strings.Split(got, "\n")
	for _, want := range []string{
		"| zset | sorted set | 1.90 | 26 % | – | – |",
		"| **this module** | exact log | 1 | – | – | – |",
		"| **this module**, rueidis | the same | 1 | – | – | – |",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, cachingRueidis) {
		t.Error("the README has an entry that is not among readmeEntries")
	}
	if strings.Contains(got, zsetRetry) {
		t.Error("an entry without a measurement has a row, want none")
	}
	if !strings.Contains(got, "the 1 missed of 2 performance targets") ||
		!strings.Contains(got, "quick") {
		t.Errorf("the text lacks the missed targets, or that the run was quick:\n%s", got)
	}
	var all strings.Builder
	rep.writeSideBySide(&all)
	for _, want := range []string{
		"| zset | sorted set | 1.90 | 26 % | 1 | – | – | – | – | – |\n",
		"| **this module** | exact log | 1 | – | 1 | – | – | – | – | – |\n",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no line %q in\n%s", want, &all)
		}
	}
	for _, bad := range []string{"", beginComparison, endComparison + beginComparison} {
		if _, err := rep.insertComparison(bad); !errors.Is(err, errNoMarkers) {
			t.Errorf("%q: got %v, want %v", bad, err, errNoMarkers)
		}
	}
}

// TestDocumentsAreWritten: the pages are what the program writes from the committed report.
func TestDocumentsAreWritten(t *testing.T) {
	const again = "go -C benchmarks run . -from ../docs/benchmarks.json " +
		"-md ../docs/benchmarks.md -readme ../README.md"
	rep, err := readReport("../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	var markdown strings.Builder
	if err := rep.writeMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	if got := read(t, "../docs/benchmarks.md"); got != markdown.String() {
		t.Errorf("docs/benchmarks.md is not what the program writes; run %s", again)
	}
	readme := read(t, "../README.md")
	want, err := rep.insertComparison(readme)
	if err != nil {
		t.Fatal(err)
	}
	if readme != want {
		t.Errorf("the comparison in README.md is not what the program writes; run %s", again)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
		summaries = append(summaries, v.What+" "+v.Measured.String()+" "+v.Target+" "+
			map[bool]string{true: "yes", false: "no"}[v.Holds])
	}
	want := []string{"quotient held 1 ≤ 1 yes", "quotient missed 1 ≤ 0.99 no",
		"value held 17.5 ≤ 17.5 yes", "at least 1 ≥ 1.01 no"}
	if !slices.Equal(summaries, want) {
		t.Errorf("got %q, want %q", summaries, want)
	}
}

// TestTargetsAreMeasured: each target names cells that a full run measures.
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
			t.Errorf("%s: no case measures %+v", target.what, target.value)
		}
		if target.over != nil && !measured[*target.over] {
			t.Errorf("%s: no case measures %+v", target.what, *target.over)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[number]string{
		0: "0", 1: "1", 0.0123: "0.012", 0.1: "0.10", 0.666: "0.67", 12.34: "12.3", 123.4: "123",
		1234567.8: "1,234,568", -1234: "-1,234",
		number(math.NaN()): "–",
	} {
		if got := v.String(); got != want {
			t.Errorf("got %q for %v, want %q", got, float64(v), want)
		}
	}
}
