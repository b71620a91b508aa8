package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompare: quotients are within a round and by the first entry, and facts stand once.
func TestCompare(t *testing.T) {
	const rounds = `goos: linux
cpu: Intel
with go 1.26.8
BenchmarkLoad/hot/entry=zset-2   100   1000 ns/op   10.0 calls/op
BenchmarkLoad/hot/entry=x-time-rate-2   100   500 ns/op
BenchmarkLoad/hot/entry=x-time-rate   100   7 ns/op
PASS
BenchmarkLoad/hot/entry=zset-2   100   4000 ns/op   0 calls/op
BenchmarkLoad/hot/entry=x-time-rate-2   100   3000 ns/op
BenchmarkLoad/hot/entry=zset-2   100   2000 ns/op   0 calls/op
BenchmarkLoad/hot/entry=x-time-rate-2   100   2000 ns/op
BenchmarkMemory/hot/cpus=1/entry=zset-2   100   1 ns/op
with go 1.26.8
`
	const want = `with cpu Intel
with go 1.26.8
with rounds 3

| Load/hot, 2 CPUs | ns/op | calls/op |
|---|---|---|
| zset | 2000 | 0 |
| x-time-rate | 2000 ×0.75 [0.5–1] | – |

| Load/hot, 1 CPUs | ns/op |
|---|---|
| x-time-rate | 7 |

| Memory/hot/cpus=1 | ns/op |
|---|---|
| zset | 1 |
`
	var got strings.Builder
	if err := compare(strings.NewReader(rounds), &got); err != nil || got.String() != want {
		t.Errorf("got %v,\n%s\nwant\n%s", err, got.String(), want)
	}
}

// TestPagesShowTables: the charts and tables of the pages are those that the program makes of the
// committed figures, and all figures of the charts and tables are there.
func TestPagesShowTables(t *testing.T) {
	const root = ".."
	files, err := drawPages(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if string(got) != want {
			t.Errorf("%s is not what %s says; run: go -C benchmarks run . -draw", name, tablesFile)
		}
	}
	drawn, err := filepath.Glob(filepath.Join(root, chartsDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(drawn) != len(files)-2 {
		t.Errorf("%s has %d files, want %d", chartsDir, len(drawn), len(files)-2)
	}
}

// TestResults: a figure is the median of the rounds or, of an entry other than the first, the
// median quotient; what was not measured is none.
func TestResults(t *testing.T) {
	r := parseResults(`with go 1.26.8
with cpu Intel Xeon

| Load/hot, 2 CPUs | ns/op | calls/op |
|---|---|---|
| zset | 2000 | 0 |
| x-time-rate | 1600 ×0.75 [0.5–1] | – |
`)
	if r.facts["go"] != "1.26.8" || r.facts["cpu"] != "Intel Xeon" {
		t.Errorf("got facts %v", r.facts)
	}
	for _, tt := range []struct {
		entry, metric   string
		value, quotient float64
		ok              bool
	}{
		{"zset", "ns/op", 2000, 1, true},
		{"zset", "calls/op", 0, 1, true},
		{"x-time-rate", "ns/op", 1600, 0.75, true},
		{"x-time-rate", "calls/op", 0, 0, false},
		{"ulule", "ns/op", 0, 0, false},
	} {
		v, ok := r.value("Load/hot", tt.entry, tt.metric)
		q, ok2 := r.quotient("Load/hot", tt.entry, tt.metric)
		if ok != tt.ok || ok2 != tt.ok || ok && (v != tt.value || q != tt.quotient) {
			t.Errorf("got %v, %v and %v, %v; want %+v", v, ok, q, ok2, tt)
		}
	}
}

// TestFigures: figures have about three digits.
func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00264: "0.003", 0.054: "0.05", 0.754: "0.75",
		1: "1.00", 10.55: "10.6", 82.7: "82.7", 999.9: "1,000", 1297900: "1,297,900"} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %s, want %s", v, got, want)
		}
	}
	if got := inPercent(20) + inPercent(0); got != "20.0 %0 %" {
		t.Errorf("got percentages %s", got)
	}
}
