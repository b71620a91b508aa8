package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What is between the markers is the program's.
const (
	beginComparison = "<!-- comparison: written by the program in benchmarks -->\n"
	endComparison   = "<!-- end of comparison -->\n"
)

var errNoMarkers = errors.New("no markers for the comparison")

// insertComparison puts the comparison between the markers of text.
func (r *report) insertComparison(text string) (string, error) {
	before, rest, ok := strings.Cut(text, beginComparison)
	_, after, closed := strings.Cut(rest, endComparison)
	if !ok || !closed {
		return "", errNoMarkers
	}
	return before + beginComparison + r.comparison() + endComparison + after, nil
}

// A column of the comparison is one cell of the report for each entry.
type column struct {
	title                  string
	subject, metric, where string
	write                  func(v *value) string
}

func median(v *value) string { return v.Median.String() }

// factor writes the quotient by the reference, which itself is 1.
func factor(v *value) string {
	if v.Ratio == nil {
		return "1"
	}
	return v.Ratio.Median.String()
}

func percent(v *value) string { return number(v.Median*100).String() + " %" }

var (
	inProcessColumns = []column{
		{"most admitted ÷ limit", "exact-memory", "worst", "aimed and random", median},
		{"wrong refusals", "exact-memory", "wrong", "aimed and random", percent},
		{"time, one key, ÷ x/time/rate", "inprocess", "time", "hot admitted, 1 CPU", factor},
		{"time, 100k keys, 2 CPUs", "inprocess", "time", "100k uniform, 2 CPUs", factor},
		{"allocations", "inprocess", "allocations", "hot admitted, 1 CPU", median},
		{"heap bytes a key, 5 requests", "heap", "heap", "sparse", median},
		{"heap bytes a key, 1,000 requests", "heap", "heap", "saturated", median},
	}
	serverColumns = []column{
		{"most admitted ÷ limit", "exact-redis", "worst", "aimed and random", median},
		{"wrong refusals", "exact-redis", "wrong", "aimed and random", percent},
		{"command time, limit 100, ÷ zset", "commands", "time", "100 admitted", factor},
		{"command time, refused, ÷ zset", "commands", "time", "100 refused", factor},
		{"decisions/s, 10k keys, c=64, ÷ zset", "load", "rate", "10k keys, c=64", factor},
		{"round trips", "commands", "round trips", "100 admitted", median},
		{"bytes a key, limit 100", "memory", "worst", "100", median},
		{"bytes a key, limit 10,000", "memory", "worst", "10000", median},
	}
)

const reading = `"Most admitted" is the most units in any rolling window. A refusal is wrong if an
exact log would have admitted. Both are the worst of bursts at the edges of windows and of random
traces. Token buckets, GCRA and fixed windows admit up to twice the limit by design; that is not a
defect. "zset" is a Lua script on a sorted set with a member for each request, the usual exact log
on Redis. A dash means that it was not measured.
`

// The comparison of the README is small: the rows that most readers know, and few columns.
var (
	readmeEntries = []string{zset, "redis_rate", "ulule", "throttled", "rueidislimiter",
		"httprate-redis", ours, oursRueidis}
	readmeColumns = []column{
		{"most admitted ÷ limit", "exact-redis", "worst", "aimed and random", median},
		{"wrong refusals", "exact-redis", "wrong", "aimed and random", percent},
		{"decisions/s, 64 callers, ÷ zset", "load", "rate", "10k keys, c=64", factor},
		{"bytes a key, limit 100", "memory", "worst", "100", median},
	}
)

// comparison is what the README has: one table, and where the rest is.
func (r *report) comparison() string {
	var b strings.Builder
	facts := make(map[string]string)
	for _, f := range r.Machine {
		facts[f.Name] = f.Value
	}
	kind := ""
	if r.Quick {
		kind = "a quick and rough run of "
	}
	server, _, _ := strings.Cut(facts["server"], ",")
	goVersion, _, _ := strings.Cut(facts["Go"], " ")
	fmt.Fprintf(&b, "Measured in %s by %sthe program in `benchmarks/`, with Go %s\n"+
		"and %s on %s shared cores:\n", r.Started.Format("January 2006"), kind,
		strings.TrimPrefix(goVersion, "go"), server, facts["cores"])
	var entries []about
	for _, e := range r.Entries[serverEntries] {
		if slices.Contains(readmeEntries, e.Name) {
			entries = append(entries, e)
		}
	}
	r.writeComparison(&b, "on Redis", entries, readmeColumns)
	b.WriteString("\n" + reading)
	b.WriteString("[Benchmarks](docs/benchmarks.md) has all libraries, in memory too,")
	missed := 0
	for _, v := range r.Targets {
		if !v.Holds {
			missed++
		}
	}
	if missed > 0 {
		fmt.Fprintf(&b, " and the %d of our %d targets\nthat were missed.\n",
			missed, len(r.Targets))
	} else {
		b.WriteString(" and our targets.\n")
	}
	return b.String()
}

// writeSideBySide writes the two tables with all libraries that help to choose.
func (r *report) writeSideBySide(b *strings.Builder) {
	b.WriteString("\n## Side by side\n\n" + reading)
	r.writeComparison(b, "in process", r.Entries[inProcessEntries], inProcessColumns)
	r.writeComparison(b, "on Redis", r.Entries[serverEntries], serverColumns)
}

// writeComparison writes a row for each entry of which the first column is known; the others are
// there to measure against.
func (r *report) writeComparison(
	b *strings.Builder, title string, entries []about, columns []column,
) {
	fmt.Fprintf(b, "\n| %s | algorithm |", title)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.title)
	}
	fmt.Fprintf(b, "\n|---|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, e := range entries {
		if r.find(columns[0], e.Name) == nil {
			continue
		}
		name := e.Name
		if client, ok := strings.CutPrefix(name, ours); ok {
			name = "**this module**" + client
		} else if v := r.Versions[e.Module]; v != "" && !strings.HasPrefix(name, zset) {
			name += " " + v
		}
		fmt.Fprintf(b, "| %s | %s |", name, e.Algorithm)
		for _, c := range columns {
			text := "–"
			if v := r.find(c, e.Name); v != nil {
				text = c.write(v)
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteString("\n")
	}
}

// find returns what the report has of an entry in a column, nil if nothing.
func (r *report) find(c column, entry string) *value {
	for _, t := range r.Tables {
		if t.Subject != c.subject || t.Metric.Name != c.metric {
			continue
		}
		for i, name := range t.Columns {
			for _, row := range t.Rows {
				if name == c.where && row.Entry == entry {
					return row.Cells[i]
				}
			}
		}
	}
	return nil
}
