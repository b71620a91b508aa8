// Command benchmarks compares the entries of benchmarks that ran in several rounds.
//
//	for round in 1 2 3 4; do go -C benchmarks test -run '^$' -bench Load; done |
//		go -C benchmarks run .
//
// A benchmark whose name ends in entry=NAME has a row for each entry and a column for each metric:
// the median over the rounds and, after ×, the median of the quotients by the first entry, each
// within one round, with their range. So a machine that is slow for a while slows both numbers of a
// quotient. To compare two versions of this module, use benchstat on the same text.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := compare(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// A table has the values of one benchmark, by entry and metric, a value for each round.
type table struct {
	name             string
	entries, metrics []string
	values           map[[2]string][]float64
}

func compare(r io.Reader, w io.Writer) error {
	var tables []*table
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "FAIL") {
			return errors.New("a round failed")
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name, entry, ok := strings.Cut(strings.TrimPrefix(fields[0], "Benchmark"), "/entry=")
		if !ok {
			continue
		}
		entry, cpus := cutCPUs(entry)
		t := tableOf(&tables, fmt.Sprintf("%s, %s CPUs", name, cpus))
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", fields[0], err)
			}
			t.add(entry, fields[i+1], value)
		}
	}
	for _, t := range tables {
		if _, err := io.WriteString(w, t.String()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// cutCPUs cuts the number of processors off a name. The testing package appends it if it is not 1.
func cutCPUs(name string) (string, string) {
	i := strings.LastIndex(name, "-")
	if i < 0 {
		return name, "1"
	}
	if _, err := strconv.Atoi(name[i+1:]); err != nil {
		return name, "1"
	}
	return name[:i], name[i+1:]
}

func tableOf(tables *[]*table, name string) *table {
	for _, t := range *tables {
		if t.name == name {
			return t
		}
	}
	t := &table{name: name, values: make(map[[2]string][]float64)}
	*tables = append(*tables, t)
	return t
}

func (t *table) add(entry, metric string, value float64) {
	if !slices.Contains(t.entries, entry) {
		t.entries = append(t.entries, entry)
	}
	if !slices.Contains(t.metrics, metric) {
		t.metrics = append(t.metrics, metric)
	}
	cell := [2]string{entry, metric}
	t.values[cell] = append(t.values[cell], value)
}

// String returns the table in Markdown.
func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| %s | %s |\n|---|%s\n", t.name, strings.Join(t.metrics, " | "),
		strings.Repeat("---|", len(t.metrics)))
	for _, entry := range t.entries {
		fmt.Fprintf(&b, "| %s |", entry)
		for _, metric := range t.metrics {
			fmt.Fprintf(&b, " %s |", t.cell(entry, metric))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (t *table) cell(entry, metric string) string {
	values := t.values[[2]string{entry, metric}]
	if len(values) == 0 {
		return "–"
	}
	text := number(median(values))
	if entry == t.entries[0] {
		return text
	}
	var quotients []float64
	for i, over := range t.values[[2]string{t.entries[0], metric}] {
		if i < len(values) && over != 0 {
			quotients = append(quotients, values[i]/over)
		}
	}
	if len(quotients) == 0 {
		return text
	}
	text += " ×" + number(median(quotients))
	if len(quotients) == 1 {
		return text
	}
	return fmt.Sprintf("%s [%s–%s]", text,
		number(slices.Min(quotients)), number(slices.Max(quotients)))
}

func number(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
