package main

import (
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
