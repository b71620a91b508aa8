package replay

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/driver"
)

const (
	textTime  = "2006-01-02 15:04:05.999999"
	keyLength = 48 // characters of a key that are shown
)

// WriteText writes the report for a terminal, with a picture.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	r.writeInput(&b)
	if r.Input.Requests > 0 {
		r.writeArrivals(&b)
		r.writeComparison(&b)
		for i := range r.Proposals {
			r.writeProposal(&b, i)
		}
	}
	_, err := io.WriteString(w, terminal.Lines(b.String()))
	return err
}

func (r *Report) writeInput(b *strings.Builder) {
	in := &r.Input
	fmt.Fprintf(b, "%s of %s (field %s), %s; format %s\n", counted(in.Requests, "request"),
		counted(int64(in.Keys), "key"), shown(in.KeyField), counted(in.Units, "unit"), in.Format)
	if in.Requests > 0 {
		fmt.Fprintf(b, "from %s to %s UTC (%v)\n", in.First.Format(textTime),
			in.Last.Format(textTime), in.Last.Sub(in.First))
	}
	if in.Late > 0 {
		fmt.Fprintf(b, "%s out of order, by at most %v: decided at the latest time so far\n",
			counted(in.Late, "line"), in.MostLate)
		if window := r.shortestWindow(); in.MostLate > window/10 {
			fmt.Fprintf(b, "  that is a lot for a window of %s: sort the log by time first\n",
				short(window))
		}
	}
	for _, w := range in.Warnings {
		fmt.Fprintf(b, "warning: %s\n", terminal.Line(w))
	}
	for _, u := range in.Unread {
		fmt.Fprintf(b, "%s not read: %s\n", counted(u.Lines, "line"), terminal.Line(u.Reason))
	}
	for _, u := range in.Examples {
		log := ""
		if u.Log > 0 {
			log = fmt.Sprintf("log %d, ", u.Log)
		}
		fmt.Fprintf(b, "  %sline %s: %s: %q\n", log, grouped(u.Line),
			terminal.Line(u.Reason), u.Text)
	}
}

func (r *Report) shortestWindow() time.Duration {
	shortest := r.Proposals[0].Limit.Window
	for _, o := range r.Proposals {
		shortest = min(shortest, o.Limit.Window)
	}
	return shortest
}

// writeComparison writes a line for each of several proposals.
func (r *Report) writeComparison(b *strings.Builder) {
	if len(r.Proposals) < 2 {
		return
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "limit\talgorithm\trefused\t\tkeys refused\t\t"+
		"most in a window\twrongly refused\t\n")
	for _, o := range r.Proposals {
		most, wrong := "≤ limit", "0"
		if e := o.Exactness; e != nil {
			most, wrong = times(e.MostInWindow, o.Limit.Max), grouped(e.WrongRefusals)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", limitText(o.Limit), o.Algorithm,
			grouped(o.Refused), percent(o.Refused, r.Input.Requests),
			grouped(int64(o.KeysRefused)), percent(int64(o.KeysRefused), int64(r.Input.Keys)),
			most, wrong)
	}
	_ = w.Flush() // b has room
}

func (r *Report) writeProposal(b *strings.Builder, i int) {
	o := &r.Proposals[i]
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "  %-16s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(b, "\nLimit %s, algorithm %s\n\n", limitText(o.Limit), o.Algorithm)
	line("refused", "%s of %s (%s), %s of %s", grouped(o.Refused),
		counted(r.Input.Requests, "request"), percent(o.Refused, r.Input.Requests),
		grouped(o.RefusedUnits), counted(r.Input.Units, "unit"))
	line("keys refused", "%s of %s (%s)", grouped(int64(o.KeysRefused)),
		grouped(int64(r.Input.Keys)), percent(int64(o.KeysRefused), int64(r.Input.Keys)))
	if o.TooLarge > 0 {
		line("never admitted", "%s for more than %s", counted(o.TooLarge, "request"),
			counted(o.Limit.Max, "unit"))
	}
	if e := o.Exactness; e != nil {
		line("most in a window", "%s = %s; %s admitted above the limit",
			counted(e.MostInWindow, "unit"), times(e.MostInWindow, o.Limit.Max),
			counted(e.OverLimit, "request"))
		line("wrongly refused", "%s, for which there was room", counted(e.WrongRefusals, "request"))
	}
	if o.Refused == 0 {
		return
	}
	line("first refusal", "%s", o.First.Format(textTime))
	line("last refusal", "%s", o.Last.Format(textTime))
	s := o.Longest
	line("longest stretch", "%v from %s: %s of %s, all refused", s.To.Sub(s.From),
		s.From.Format(textTime), counted(s.Refused, "request"), shown(s.Key))
	r.writeRefusals(b, i)
	o.writeWorst(b)
}

func (o *Outcome) writeWorst(b *strings.Builder) {
	width := len("worst keys")
	for _, k := range o.WorstKeys {
		width = max(width, utf8.RuneCountInString(shown(k.Key)))
	}
	fmt.Fprintf(b, "\n  %-*s %10s  of requests\n", width, "worst keys", "refused")
	for _, k := range o.WorstKeys {
		fmt.Fprintf(b, "  %-*s %10s  %11s\n",
			width, shown(k.Key), grouped(k.Refused), grouped(k.Requests))
	}
}

// shown returns a key as it can be printed: quoted if it has characters that a terminal might
// interpret, and cut if it is long.
func shown(key string) string {
	if quoted := strconv.Quote(key); quoted[1:len(quoted)-1] != key {
		key = quoted
	}
	if utf8.RuneCountInString(key) > keyLength {
		key = string([]rune(key)[:keyLength-1]) + "…"
	}
	return key
}

// grouped returns n with a comma between groups of three digits.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func counted(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return grouped(n) + " " + noun
}

// percent returns n of "of" as a percentage. It shows neither 0.0 % for a part that is not empty
// nor 100.0 % for one that is not all.
func percent(n, of int64) string {
	switch p := 100 * float64(n) / float64(max(of, 1)); {
	case n > 0 && p < 0.1:
		return "<0.1 %"
	case n < of && p > 99.9:
		return ">99.9 %"
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// times returns n as a multiple of a limit.
func times(n, limit int64) string {
	return fmt.Sprintf("%.2f × limit", float64(n)/float64(limit))
}

// limitText returns a limit as users write it.
func limitText(l driver.Limit) string {
	full := l.Window.String()
	return strings.TrimSuffix(l.String(), full) + short(l.Window)
}

// short returns a duration without units that are zero, such as 1m instead of 1m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
