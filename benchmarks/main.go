// Command benchmarks compares the entries of benchmarks that ran in several rounds.
//
//	for round in 1 2 3 4; do go -C benchmarks test -run '^$' -bench Load; done |
//		go -C benchmarks run .
//
// A benchmark whose name ends in entry=NAME has a row for each entry and a column for each metric:
// the median over the rounds and, after ×, the median of the quotients by the first entry, each
// within one round, with their range. So a machine that is slow for a while slows both numbers of a
// quotient. To compare two versions of this module, use benchstat on the same text.
//
// With -draw it reads these tables from docs/benchmarks.txt instead, where "make compare" writes
// them, and writes the charts and tables of docs/benchmarks.md and README.md.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	fromTables := flag.Bool("draw", false, "write charts and tables of pages from "+tablesFile)
	flag.Parse()
	do := func() error { return compare(os.Stdin, os.Stdout) }
	if *fromTables {
		do = func() error { return writePages("..") }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// writePages writes what drawPages returns.
func writePages(root string) error {
	files, err := drawPages(root)
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)
		}
	}
	return err
}

// A table has the values of one benchmark, by entry and metric, a value for each round.
type table struct {
	name             string
	entries, metrics []string
	values           map[[2]string][]float64
}

// compare writes the tables of the rounds, after the lines that begin with "with", each once: what
// was measured.
func compare(r io.Reader, w io.Writer) error {
	var tables []*table
	var facts []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if cpu, ok := strings.CutPrefix(lines.Text(), "cpu: "); ok {
			facts = append(facts, "with cpu "+cpu)
		} else if strings.HasPrefix(lines.Text(), "with ") {
			facts = append(facts, lines.Text())
		}
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
		if !strings.Contains(name, "cpus=") {
			name = fmt.Sprintf("%s, %s CPUs", name, cpus)
		}
		t := tableOf(&tables, name)
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", fields[0], err)
			}
			t.add(entry, fields[i+1], value)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(tables) > 0 {
		facts = append(facts, fmt.Sprint("with rounds ", tables[0].rounds()))
	}
	slices.Sort(facts)
	var text strings.Builder
	for _, fact := range slices.Compact(facts) {
		text.WriteString(fact + "\n")
	}
	for _, t := range tables {
		text.WriteString(t.String())
	}
	_, err := io.WriteString(w, text.String())
	return err
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

// rounds returns how often the first entry ran.
func (t *table) rounds() int { return len(t.values[[2]string{t.entries[0], t.metrics[0]}]) }

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
