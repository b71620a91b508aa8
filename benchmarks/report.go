package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A table has a row for each entry and a column for each case of one metric.
type table struct {
	Subject, Title, Reference string
	Metric                    metric
	Columns                   []string
	Rows                      []row
}

type row struct {
	Entry string
	Cells []*value // nil where nothing was measured
}

// A report is the result of a run.
type report struct {
	Started  time.Time
	Took     time.Duration
	Command  string
	Quick    bool
	Machine  []fact
	Entries  map[string][]about // by inProcessEntries and serverEntries
	Versions map[string]string  // by module
	Rounds   int
	Targets  []verdict
	Tables   []table
	Limits   []fact   // upper bounds of the server's rate, by redis-benchmark
	Failures []string // measurements that failed
	Parts    []part   `json:",omitempty"` // subjects measured in separate runs, in their order
}

const (
	inProcessEntries = "in process"
	serverEntries    = "server"
)

// tables returns the tables of the subjects.
func (r *results) tables(subjects []subject) []table {
	var ts []table
	for _, s := range subjects {
		for _, m := range s.metrics {
			t := table{Subject: s.name, Title: s.title, Reference: s.reference, Metric: m}
			rows := make(map[string]int)
			for _, c := range s.cases {
				t.Columns = append(t.Columns, c.name)
				for _, e := range c.entries {
					if _, ok := rows[e]; !ok {
						rows[e] = len(t.Rows)
						t.Rows = append(t.Rows, row{Entry: e, Cells: make([]*value, len(s.cases))})
					}
				}
			}
			reference := s.reference
			if m.Alone {
				reference = ""
			}
			measured := false
			for i, c := range s.cases {
				for _, e := range c.entries {
					v := r.value(cell{s.name, m.Name, c.name, e}, reference)
					t.Rows[rows[e]].Cells[i] = v
					measured = measured || v != nil
				}
			}
			if measured {
				ts = append(ts, t)
			}
		}
	}
	return ts
}

// value summarizes a cell. It returns nil if nothing was measured.
func (r *results) value(c cell, reference string) *value {
	rounds := r.values[c]
	s := summarize(rounds)
	if s.N == 0 {
		return nil
	}
	v := &value{Median: round5(s.Median), Min: round5(s.Min), Max: round5(s.Max), Rounds: s.N}
	if reference == "" || reference == c.Entry {
		return v
	}
	over := c
	over.Entry = reference
	if q := summarize(quotients(rounds, r.values[over])); q.N > 0 {
		v.Ratio = &ratio{round5(q.Median), round5(q.Min), round5(q.Max)}
	}
	return v
}

// writeJSON writes a line for each table and each row, for readable diffs.
func (r *report) writeJSON(w io.Writer) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return err
	}
	_, err := strings.NewReplacer(`{"Subject"`, "\n"+`{"Subject"`, `{"Entry"`, "\n"+`{"Entry"`,
		`"Tables":`, "\n"+`"Tables":`, `"Limits":`, "\n"+`"Limits":`,
		`"Parts":`, "\n"+`"Parts":`).
		WriteString(w, b.String())
	return err
}

func readReport(name string) (*report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rep := new(report)
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(rep); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rep, nil
}

const caveats = `A figure is the median over the rounds, with the range in brackets. Each round
measures all entries in turn. **×** is the figure divided by that of the table's reference
entry in the same round. A dash means that nothing was measured.

A row is an [entry](#entries): a library, or a script to compare with. "ratelimit" is this module. A
column is a case. "hot" means one key for all decisions; "uniform" draws all keys equally often,
"zipf" draws key k about as often as 1/k^1.1. "c=64" means 64 concurrent callers. "refused" means
that every decision is a refusal; in the other cases all should be admitted unless the text says
otherwise.

Before you use a figure:

- Compare within one table, and compare quotients rather than times. The machine is shared: when it
  is busy, times double, quotients differ by a third between runs, and the longest times come mostly
  from the machine. The brackets show how quiet it was.
- The server runs on loopback, on the same cores as its clients. Over a network a round trip takes
  far longer than any decision here.
- The libraries promise different things. A token bucket, GCRA or fixed window keeps a few bytes per
  key and may by design admit up to twice its limit in a window. The quotients show what exactness
  costs and saves, not which library is better.
- A target is a bound that this project set itself. It is compared with the median of one run.
`

// writeMarkdown writes the page.
func (r *report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\nMeasured by `%s`, %s, in %s, rounds: %d. "+
		"Do not edit this page: the next run overwrites it.\n\n",
		r.Command, r.Started.UTC().Format("2006-01-02 15:04 MST"),
		r.Took.Round(time.Second), r.Rounds)
	r.writeParts(&b)
	if r.Quick {
		b.WriteString("**This was a quick run**: it measures for a short time and leaves much " +
			"out. Its figures are less precise than those of a full run.\n\n")
	}
	for _, f := range r.Machine {
		fmt.Fprintf(&b, "- %s: %s\n", f.Name, f.Value)
	}
	b.WriteString("\n" + caveats)
	r.writeSideBySide(&b)
	r.writeMisses(&b)
	subject := ""
	for i, t := range r.Tables {
		if t.Subject != subject {
			subject = t.Subject
			fmt.Fprintf(&b, "\n## %s\n", t.Title)
			if t.Reference != "" {
				fmt.Fprintf(&b, "\nReference: %s.\n", t.Reference)
			}
		}
		t.writeMarkdown(&b)
		if i == len(r.Tables)-1 || r.Tables[i+1].Subject != subject {
			r.writeTargets(&b, subject)
		}
	}
	if len(r.Limits) > 0 {
		b.WriteString("\n## What the server can do\n\n" +
			"Measured by redis-benchmark. A decision that is not batched cannot be faster than " +
			"an empty script; one script decides a whole batch.\n\n")
		for _, f := range r.Limits {
			fmt.Fprintf(&b, "- %s: %s\n", f.Name, f.Value)
		}
	}
	b.WriteString("\n## Entries\n\n" +
		"| entry | where | module | version | licence | algorithm |\n|---|---|---|---|---|---|\n")
	for _, where := range []string{inProcessEntries, serverEntries} {
		for _, e := range r.Entries[where] {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
				e.Name, where, e.Module, r.Versions[e.Module], e.Licence, e.Algorithm)
		}
	}
	if len(r.Failures) > 0 {
		b.WriteString("\n## Measurements that failed or were left out\n\n")
		for _, f := range r.Failures {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	_, err := io.WriteString(w, wrapProse(b.String()))
	return err
}

// writeParts writes which subjects were measured in separate runs.
func (r *report) writeParts(b *strings.Builder) {
	titles := make(map[string]string)
	for _, t := range r.Tables {
		titles[t.Subject] = t.Title
	}
	for _, p := range r.Parts {
		var names, machine []string
		for _, s := range p.Subjects {
			names = append(names, titles[s])
		}
		for _, f := range p.Machine {
			machine = append(machine, f.Name+" "+f.Value)
		}
		kind := ""
		if p.Quick {
			kind = ", a quick run with less precise figures"
		}
		fmt.Fprintf(b, "A separate run measured \"%s\": `%s`, %s, in %s, rounds: %d%s. "+
			"Machine: %s.\n\n",
			strings.Join(names, `" and "`), p.Command,
			p.Started.UTC().Format("2006-01-02 15:04 MST"),
			p.Took.Round(time.Second), p.Rounds, kind, strings.Join(machine, ", "))
	}
}

// writeMisses writes the missed targets.
func (r *report) writeMisses(b *strings.Builder) {
	var missed []verdict
	for _, v := range r.Targets {
		if !v.Holds {
			missed = append(missed, v)
		}
	}
	if len(r.Targets) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Targets\n\n%d of %d targets hold. Each subject ends with its targets.",
		len(r.Targets)-len(missed), len(r.Targets))
	if len(missed) > 0 {
		b.WriteString(" These are missed:\n\n| target | measured | bound | what limits it |\n" +
			"|---|---|---|---|\n")
		for _, v := range missed {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", v.What, v.measured(), v.Target, bound(v.What))
		}
	} else {
		b.WriteString("\n")
	}
}

func (r *report) writeTargets(b *strings.Builder, subject string) {
	header := "\nTargets:\n\n| target | measured | bound | |\n|---|---|---|---|\n"
	for _, v := range r.Targets {
		if v.Subject != subject {
			continue
		}
		b.WriteString(header)
		header = ""
		holds := "**missed**"
		if v.Holds {
			holds = "holds"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", v.What, v.measured(), v.Target, holds)
	}
}

func (v verdict) measured() string { return withRange(v.Measured, v.Range[0], v.Range[1], 2) }

func (t *table) writeMarkdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n**%s**, %s.", t.Metric.Name, t.Metric.Unit)
	if t.Metric.Note != "" {
		fmt.Fprintf(b, " %s", t.Metric.Note)
	}
	if same, ok := t.same(); ok {
		fmt.Fprintf(b, " All values are %s.\n", same)
		return
	}
	fmt.Fprintf(b, "\n\n| %s | %s |\n|---|%s\n", t.Metric.Name, strings.Join(t.Columns, " | "),
		strings.Repeat("---|", len(t.Columns)))
	for _, row := range t.Rows {
		fmt.Fprintf(b, "| %s |", row.Entry)
		for _, v := range row.Cells {
			fmt.Fprintf(b, " %v |", v)
		}
		b.WriteString("\n")
	}
}

// same returns the common value of all cells, if there are several and all are equal.
func (t *table) same() (text string, ok bool) {
	cells := 0
	for _, row := range t.Rows {
		for _, v := range row.Cells {
			if v == nil {
				continue
			}
			s := withRange(v.Median, v.Min, v.Max, v.Rounds)
			if cells++; cells > 1 && s != text {
				return "", false
			}
			text = s
		}
	}
	return text, cells > 1
}
