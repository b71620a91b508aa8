package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The program writes the text between the markers.
const (
	beginComparison = "<!-- comparison: written by the program in benchmarks -->\n"
	endComparison   = "<!-- end of comparison -->\n"
)

var errNoMarkers = errors.New("the file lacks the markers of the comparison")

// insertComparison replaces the text between the markers by the comparison.
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

// factor writes the quotient by the reference, 1 for the reference itself.
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
		{"heap bytes per key, 5 requests", "heap", "heap", "sparse", median},
		{"heap bytes per key, 1,000 requests", "heap", "heap", "saturated", median},
	}
	serverColumns = []column{
		{"most admitted ÷ limit", "exact-redis", "worst", "aimed and random", median},
		{"wrong refusals", "exact-redis", "wrong", "aimed and random", percent},
		{"command time, limit 100, ÷ zset", "commands", "time", "100 admitted", factor},
		{"command time, refused, ÷ zset", "commands", "time", "100 refused", factor},
		{"decisions/s, 10k keys, c=64, ÷ zset", "load", "rate", "10k keys, c=64", factor},
		{"round trips", "commands", "round trips", "100 admitted", median},
		{"bytes per key, limit 100", "memory", "worst", "100", median},
		{"bytes per key, limit 10,000", "memory", "worst", "10000", median},
	}
)

const reading = `"Most admitted" is the most units admitted in any rolling window. A refusal is ` +
	"wrong if an exact log would have admitted the request. Both are measured with bursts aimed " +
	"at the edges of windows and with random bursts. Token buckets, GCRA and fixed windows admit " +
	"up to twice the limit by design; that is not a defect. " +
	`"zset" is a Lua script on a sorted set with a member for each request, the usual exact ` +
	"log on Redis. A dash means that nothing was measured."

// The comparison in the README has only the best-known entries, and few columns.
var (
	readmeEntries = []string{zset, "redis_rate", "ulule", "throttled", "rueidislimiter",
		"httprate-redis", ours, oursRueidis}
	readmeColumns = []column{
		{"most admitted ÷ limit", "exact-redis", "worst", "aimed and random", median},
		{"wrong refusals", "exact-redis", "wrong", "aimed and random", percent},
		{"decisions/s, 64 callers, ÷ zset", "load", "rate", "10k keys, c=64", factor},
		{"bytes per key, limit 100", "memory", "worst", "100", median},
	}
)

// comparison returns the text of the README: one table, and a link to the rest.
func (r *report) comparison() string {
	var b strings.Builder
	facts := make(map[string]string)
	for _, f := range r.Machine {
		facts[f.Name] = f.Value
	}
	kind := ""
	if r.Quick {
		kind = "a quick run, with less precise figures, of "
	}
	server, _, _ := strings.Cut(facts["server"], ",")
	goVersion, _, _ := strings.Cut(facts["Go"], " ")
	fmt.Fprintf(&b, "Measured in %s by %sthe program in `benchmarks/`, with Go %s "+
		"and %s on %s shared cores:\n", r.Started.Format("January 2006"), kind,
		strings.TrimPrefix(goVersion, "go"), server, facts["cores"])
	var entries []about
	for _, e := range r.Entries[serverEntries] {
		if slices.Contains(readmeEntries, e.Name) {
			entries = append(entries, e)
		}
	}
	r.writeComparison(&b, "on Redis", entries, readmeColumns)
	missed := 0
	for _, v := range r.Targets {
		if !v.Holds {
			missed++
		}
	}
	fmt.Fprintf(&b, "\n%s [Benchmarks](docs/benchmarks.md) compares all libraries, also in "+
		"process, and lists the %d missed of %d performance targets.\n",
		reading, missed, len(r.Targets))
	return wrapProse(b.String())
}

// writeSideBySide writes the two tables that compare all libraries.
func (r *report) writeSideBySide(b *strings.Builder) {
	b.WriteString("\n## Side by side\n\n" + reading + "\n")
	r.writeComparison(b, "in process", r.Entries[inProcessEntries], inProcessColumns)
	r.writeComparison(b, "on Redis", r.Entries[serverEntries], serverColumns)
}

// writeComparison writes a row for each entry with a value in the first column. The others are
// only references.
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

// find returns the value of an entry in a column, or nil.
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
