package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// partOf returns the report of a later run of one subject.
func partOf(subject, title string, columns ...string) *report {
	rep := sampleReport()
	rep.Started, rep.Command = rep.Started.Add(time.Hour), "run of "+subject
	t := table{Subject: subject, Title: title, Metric: metric{Name: "time", Unit: "ns"},
		Columns: columns}
	r := row{Entry: ours}
	for i := range columns {
		v := number(7 + i)
		r.Cells = append(r.Cells, &value{Median: v, Min: v, Max: v, Rounds: 1})
	}
	t.Rows = []row{r}
	rep.Tables, rep.Failures = []table{t}, nil
	rep.Targets = []verdict{{Subject: subject, What: "again", Measured: 7, Target: "≤ 8"}}
	return rep
}

func TestMerge(t *testing.T) {
	rep := sampleReport()
	for _, newer := range []*report{
		partOf("edges", "Edges", "one"),
		partOf("commands", "Cost", "100", "1000"),
		partOf("edges", "Edges", "one", "two"),
	} {
		newer.Entries = maps.Clone(newer.Entries)
		newer.Entries[inProcessEntries] = []about{{ours, oursName, "MIT", "exact log"}}
		newer.Versions[oursName] = "this"
		if err := rep.merge(newer); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := rep.writeMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	text := "\n" + b.String()
	for _, want := range []string{
		"A separate run measured \"Cost\": `run of commands`, 2026-11-30 13:00 UTC, in 1m0s, " +
			"rounds: 2, a quick run with less precise figures. Machine: Go go1.26 linux/amd64.",
		"A separate run measured \"Edges\": `run of edges`, 2026-11-30 13:00 UTC, in 1m0s, " +
			"rounds: 2, a quick run with less precise figures. Machine: Go go1.26 linux/amd64.",
		"| time | 100 | 1000 |",
		"| time | one | two |",
		"| ratelimit | 7 | 8 |",
		"0 of 2 targets hold. Each subject ends with its targets. These are missed:",
		"| zset | server | example.com/zset | v1.2.3 | MIT | sorted set |",
		"| ratelimit | in process | " + oursName + " | this | MIT | exact log |",
	} {
		if !strings.Contains(text, "\n"+wrapProse(want+"\n")) {
			t.Errorf("no line %q", want)
		}
	}
	if got := strings.Count(b.String(), "A separate run measured"); got != 2 {
		t.Errorf("got %d parts, want 2: the second run of edges replaces the first", got)
	}
	if strings.Contains(b.String(), "broken") {
		t.Error("the failure of a subject that was measured again is still there")
	}
	if strings.Index(b.String(), "## Cost") > strings.Index(b.String(), "## Edges") {
		t.Error("a subject that was measured again has moved")
	}
	if t.Failed() {
		t.Log(b.String())
	}
}

func TestMergeKeepsTheRest(t *testing.T) {
	few := partOf("commands", "Cost", "100")
	other := partOf("edges", "Edges", "one")
	other.Versions = map[string]string{"example.com/zset": "v2.0.0"}
	for want, newer := range map[string]*report{
		"commands/1000, which was not measured": few,
		"v1.2.3, which is now v2.0.0":           other,
	} {
		rep := sampleReport()
		if err := rep.merge(newer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if len(rep.Tables) != len(sampleReport().Tables) || len(rep.Parts) != 0 {
			t.Error("the report was changed, want it kept")
		}
	}
}
