package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	// figure is a number that was measured: with thousands, or with two decimals.
	figure = regexp.MustCompile(`\b(?:\d{1,3}(?:,\d{3})+|\d+\.\d\d)\b`)
)

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

// TestPageFigures: the measured numbers in the prose of pages are in the report.
func TestPageFigures(t *testing.T) {
	reported := make(map[string]bool)
	for _, n := range figure.FindAllString(read(t, "../docs/benchmarks.md"), -1) {
		reported[n] = true
	}
	for page, least := range map[string]int{"design": 3, "migrating": 10, "operations": 6} {
		text := codeBlock.ReplaceAllString(read(t, "../docs/"+page+".md"), "")
		found := figure.FindAllString(text, -1)
		for _, n := range found {
			if !reported[n] {
				t.Errorf("docs/%s.md: %s is not in docs/benchmarks.md", page, n)
			}
		}
		if len(found) < least {
			t.Errorf("docs/%s.md: found only %d numbers, want %d", page, len(found), least)
		}
	}
}
