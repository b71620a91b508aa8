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

// A report is all that a run found.
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
	Limits   []fact   // what the server can do at most, by redis-benchmark
	Failures []string // measurements that failed
	Parts    []part   `json:",omitempty"` // measured apart, in the order of the runs
}

const (
	inProcessEntries = "in process"
	serverEntries    = "server"
)

// tables sets out what was measured of the subjects.
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

// value summarizes a cell; nil if there is none.
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

// writeJSON writes a line for each table and for each row, so that changes can be read.
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

const caveats = `Medians, with the range over the rounds in brackets. **×** is the quotient by the
reference within the same round, in which all entries are measured in turn. Before you use a figure:

- Compare within one table, and compare quotients rather than times. The machine is shared: when it
  is busy, times double and quotients differ by a third between runs, and the longest of anything
  comes mostly from the machine. The brackets show how quiet it was.
- The server is on loopback, on the same cores as its clients. Over a network a round trip takes far
  longer than any decision here.
- The libraries promise different things. A token bucket, GCRA or fixed window keeps a few bytes a
  key and may by design admit up to twice its limit in a window; the quotients show what exactness
  costs and saves, not which library is better.
- A target is a bound that this project set itself. The median is compared with it, in the one run
  that measured it.
`

// writeMarkdown writes everything, subject by subject.
func (r *report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\nWritten by `%s`, %s, in %s, rounds: %d. "+
		"Do not edit: the next run overwrites this page.\n\n",
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
			"By redis-benchmark: no decision is faster than an empty script.\n\n")
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

// writeParts says what was not measured in the whole run.
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
			kind = ", a quick and rough run"
		}
		fmt.Fprintf(b, "Measured apart: %s, by `%s`, %s, in %s, rounds: %d%s. Machine: %s.\n\n",
			strings.Join(names, "; "), p.Command, p.Started.UTC().Format("2006-01-02 15:04 MST"),
			p.Took.Round(time.Second), p.Rounds, kind, strings.Join(machine, ", "))
	}
}

// writeMisses says first what does not hold.
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
	fmt.Fprintf(b, "\n## Targets\n\n%d of %d targets hold; they stand below each subject.",
		len(r.Targets)-len(missed), len(r.Targets))
	if len(missed) > 0 {
		b.WriteString(" These do not:\n\n| missed | measured | target | bounded by |\n" +
			"|---|---|---|---|\n")
		for _, v := range missed {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", v.What, v.measured(), v.Target, bound(v.What))
		}
	} else {
		b.WriteString("\n")
	}
}

func (r *report) writeTargets(b *strings.Builder, subject string) {
	header := "\nTargets.\n\n| target | measured | bound | |\n|---|---|---|---|\n"
	for _, v := range r.Targets {
		if v.Subject != subject {
			continue
		}
		b.WriteString(header)
		header = ""
		holds := "**misses**"
		if v.Holds {
			holds = "holds"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", v.What, v.measured(), v.Target, holds)
	}
}

func (v verdict) measured() string { return withRange(v.Measured, v.Range[0], v.Range[1], 2) }

func (t *table) writeMarkdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s, %s.", t.Metric.Name, t.Metric.Unit)
	if t.Metric.Note != "" {
		fmt.Fprintf(b, " %s", t.Metric.Note)
	}
	if same, ok := t.same(); ok {
		fmt.Fprintf(b, " Everywhere %s.\n", same)
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

// same returns the value that all cells have, if there are several and they have one.
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
