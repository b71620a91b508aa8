package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// A number is written with about three digits, and as null in JSON if it is NaN.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if v := float64(n); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return json.Marshal(v)
	}
	return []byte("null"), nil
}

func (n number) String() string {
	v := float64(n)
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 100 || v == math.Trunc(v):
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.095:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// thousands sets commas into the digits of a whole number.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// A value is a summary over rounds. Ratio is that of the quotients by the reference within each round.
type value struct {
	Median, Min, Max number
	Rounds           []number
	Ratio            *ratio `json:",omitempty"`
}

type ratio struct{ Median, Min, Max number }

func (v *value) String() string {
	if v == nil {
		return "–"
	}
	s := withRange(v.Median, v.Min, v.Max, len(v.Rounds))
	if v.Ratio != nil {
		s += " **×" + withRange(v.Ratio.Median, v.Ratio.Min, v.Ratio.Max, len(v.Rounds)) + "**"
	}
	return s
}

func withRange(median, low, high number, rounds int) string {
	if rounds < 2 || low.String() == high.String() {
		return median.String()
	}
	return fmt.Sprintf("%v [%v–%v]", median, low, high)
}

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
	Machine  []fact
	Entries  map[string][]about // by "in process" and "server"
	Versions map[string]string  // by module
	Rounds   int
	Targets  []verdict
	Tables   []table
	Limits   []fact   // what the server can do at most, by redis-benchmark
	Failures []string // measurements that failed
}

// A fact is one line about the run.
type fact struct{ Name, Value string }

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
	v := &value{Median: number(s.Median), Min: number(s.Min), Max: number(s.Max)}
	for _, f := range rounds {
		v.Rounds = append(v.Rounds, number(f))
	}
	if reference == "" || reference == c.Entry {
		return v
	}
	over := c
	over.Entry = reference
	if q := summarize(quotients(rounds, r.values[over])); q.N > 0 {
		v.Ratio = &ratio{number(q.Median), number(q.Min), number(q.Max)}
	}
	return v
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

func (r *report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\n`%s`, %s, took %s, rounds: %d.\n", r.Command, r.Started.UTC().Format("2006-01-02 15:04 MST"),
		r.Took.Round(time.Second), r.Rounds)
	b.WriteString("Medians, with the range over the rounds in brackets. **×** is the quotient by the reference within the same round.\n\n")
	for _, f := range r.Machine {
		fmt.Fprintf(&b, "- %s: %s\n", f.Name, f.Value)
	}
	if len(r.Targets) > 0 {
		b.WriteString("\n## Targets\n\n| what | measured | target | holds |\n|---|---|---|---|\n")
		for _, v := range r.Targets {
			holds := "**no**"
			if v.Holds {
				holds = "yes"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", v.What, withRange(v.Measured, v.Range[0], v.Range[1], 2), v.Target, holds)
		}
	}
	subject := ""
	for _, t := range r.Tables {
		if t.Subject != subject {
			subject = t.Subject
			fmt.Fprintf(&b, "\n## %s\n", t.Title)
			if t.Reference != "" {
				fmt.Fprintf(&b, "\nReference: %s.\n", t.Reference)
			}
		}
		t.writeMarkdown(&b)
	}
	if len(r.Limits) > 0 {
		b.WriteString("\n## What the server can do\n\n")
		for _, f := range r.Limits {
			fmt.Fprintf(&b, "- %s: %s\n", f.Name, f.Value)
		}
	}
	b.WriteString("\n## Entries\n\n| entry | where | module | version | licence | algorithm |\n|---|---|---|---|---|---|\n")
	for _, where := range []string{"in process", "server"} {
		for _, e := range r.Entries[where] {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", e.Name, where, e.Module, r.Versions[e.Module], e.Licence, e.Algorithm)
		}
	}
	if len(r.Failures) > 0 {
		b.WriteString("\n## Measurements that failed\n\n")
		for _, f := range r.Failures {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *table) writeMarkdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s, %s.", t.Metric.Name, t.Metric.Unit)
	if t.Metric.Note != "" {
		fmt.Fprintf(b, " %s", t.Metric.Note)
	}
	fmt.Fprintf(b, "\n\n| %s | %s |\n|---|%s\n", t.Metric.Name, strings.Join(t.Columns, " | "), strings.Repeat("---|", len(t.Columns)))
	for _, row := range t.Rows {
		fmt.Fprintf(b, "| %s |", row.Entry)
		for _, v := range row.Cells {
			fmt.Fprintf(b, " %v |", v)
		}
		b.WriteString("\n")
	}
}
