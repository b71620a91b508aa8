package daemon

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

var spaces = regexp.MustCompile(" +")

// squeeze leaves one space between words.
func squeeze(s string) string { return spaces.ReplaceAllString(s, " ") }

func TestDemo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.svg")
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		start := time.Now()
		if code := run(t.Context(), []string{"demo", "--limit=7/300ms", "--svg=" + file}, &stdout,
			&stderr); code != exitOK {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
		if took := time.Since(start); took < 5*300*time.Millisecond ||
			took > 6*300*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		out := stdout.String()
		squeezed := squeeze(out)
		for _, want := range []string{
			"\nFixed window 14 2.00 45 28 17 0\n",
			"\nSliding window counter 12 1.71 45 20 25 8\n",
			"\nToken bucket 13 1.86 45 27 18 0\n",
			"\nExact log 7 1.00 45 21 24 0\n",
			"\nwith the limit 7/300ms on memory. This takes 1.5s.\n",
		} {
			if !strings.Contains(squeezed, want) {
				t.Errorf("output lacks %q", want)
			}
		}
		if lines := strings.Count(out, "\n"); lines > 40 {
			t.Errorf("%d lines are more than a screen", lines)
		}
		if strings.ContainsAny(out, "\r\x1b") {
			t.Error("lines are redrawn where there is no terminal")
		}
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 72 {
				t.Errorf("a line has %d columns: %s", n, line)
			}
		}
		if t.Failed() {
			t.Log(out)
		}
	})
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Fixed window: at most 14 units in any window, 2.00 times the limit; " +
			"28 of 45 admitted, 0 refused wrongly.",
		"Exact log: at most 7 units in any window, 1.00 times the limit; " +
			"21 of 45 admitted, 0 refused wrongly.",
	} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("the picture lacks %q: %s", want, svg)
		}
	}
}

func TestDemoFailsBeforeTheRun(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--limit=10001/1s"}, exitUsage, "at most 10000 units"},
		{[]string{"--limit=10/1h"}, exitUsage, "at most 10000 units"},
		{[]string{"--limit=10/199ms"}, exitUsage, "at most 10000 units"},
		{[]string{"--limit=none"}, exitUsage, "MAX/WINDOW"},
		{[]string{"--store=file://here"}, exitError, `scheme "file"`},
		{[]string{"--store=redis://user:" + secret + "@127.0.0.1:1"}, exitError,
			"the store cannot decide"},
		{[]string{"--svg=" + filepath.Join(t.TempDir(), "missing", "demo.svg")}, exitError,
			"no such file or directory"},
	} {
		var stdout, stderr bytes.Buffer
		start := time.Now()
		code := run(t.Context(), append([]string{"demo"}, test.args...), &stdout, &stderr)
		if code != test.code || !strings.Contains(stderr.String(), test.want) ||
			strings.Contains(stderr.String(), secret) {
			t.Errorf("%v: exit code %d: %s", test.args, code, stderr.String())
		}
		if took := time.Since(start); stdout.Len() > 0 || took > 5*time.Second {
			t.Errorf("%v: after %v it wrote %q", test.args, took, stdout.String())
		}
	}
}

func TestDemoInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.svg")
	synctest.Test(t, func(t *testing.T) {
		// the fake clock starts at an edge, the run half a window later
		const lead, after = time.Second, 1500 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), lead+after)
		defer cancel()
		var stdout, stderr bytes.Buffer
		start := time.Now()
		if code := run(ctx, []string{"demo", "--svg=" + file}, &stdout,
			&stderr); code != exitError {
			t.Errorf("exit code %d", code)
		}
		if took := time.Since(start); took != lead+after {
			t.Errorf("it took %v", took)
		}
		if got := stderr.String(); !strings.Contains(got, "interrupted after 1.5s of 10s") {
			t.Errorf("error: %s", got)
		}
		for _, want := range []string{
			"\nFixed window 40 2.00 50 40 10 0\n",
			"\nSliding window counter 21 1.05 50 21 29 0\n",
			"\nToken bucket 24 1.20 50 24 26 0\n",
			"\nExact log 20 1.00 50 20 30 0\n",
		} {
			if !strings.Contains(squeeze(stdout.String()), want) {
				t.Errorf("output lacks %q:\n%s", want, stdout.String())
			}
		}
	})
	if svg, err := os.ReadFile(file); err != nil ||
		!bytes.Contains(svg, []byte("2.00 × the limit")) {
		t.Errorf("the SVG file: %v, %d bytes", err, len(svg))
	}
}
