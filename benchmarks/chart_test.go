package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestChartsAreDrawn checks that the committed charts are what the program draws from the committed
// report, for light and dark backgrounds and for screen readers.
func TestChartsAreDrawn(t *testing.T) {
	rep, err := readReport("../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := rep.writeCharts(dir); err != nil {
		t.Fatal(err)
	}
	for name := range rep.charts() {
		want, got := read(t, dir+"/"+name), read(t, "../docs/charts/"+name)
		if got != want {
			t.Errorf("docs/charts/%s is not what the program draws; run make charts", name)
		}
		for _, part := range []string{"<title ", "<desc ", "(prefers-color-scheme: dark)"} {
			if !strings.Contains(got, part) {
				t.Errorf("docs/charts/%s has no %s", name, part)
			}
		}
	}
}

// TestChartSentence: docs/choosing.md has the right figure for an entry that the chart of callers
// does not show in full.
func TestChartSentence(t *testing.T) {
	rep, err := readReport("../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	failed := rep.find(column{subject: "load", metric: "errors", where: "hot key, c=512"},
		"throttled")
	if failed == nil {
		t.Fatal("the report lacks the errors of throttled")
	}
	want := fmt.Sprintf("512 callers %.0f %% of the calls of throttled fail", 100*failed.Median)
	if !strings.Contains(read(t, "../docs/choosing.md"), want) {
		t.Errorf("docs/choosing.md does not say %q", want)
	}
}
