package replay

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/truewindow/ratelimit/driver"
)

// split returns the lines of a log in turn as so many logs.
func split(log string, n int) (logs []io.Reader) {
	parts := make([]strings.Builder, n)
	for i, line := range strings.SplitAfter(log, "\n") {
		parts[i%n].WriteString(line)
	}
	for i := range parts {
		logs = append(logs, strings.NewReader(parts[i].String()))
	}
	return logs
}

// TestLogsAreMergedByTime checks that parts of a log are replayed as the whole, in any order.
func TestLogsAreMergedByTime(t *testing.T) {
	log, as := logOf(10_000)
	_, want := replayed(t, proposals, as)
	half := strings.Index(log[len(log)/2:], "\n") + len(log)/2 + 1
	for name, logs := range map[string][]io.Reader{
		"of three servers": split(log, 3),
		"of many":          split(log, 50),
		"rotated":          {strings.NewReader(log[:half]), strings.NewReader(log[half:])},
		"the newer first":  {strings.NewReader(log[half:]), strings.NewReader(log[:half])},
		"and an empty one": {strings.NewReader(""), strings.NewReader(log),
			strings.NewReader("\n")},
	} {
		got, err := Run(t.Context(), logs, Options{Format: JSONLines, Proposals: proposals})
		if err != nil {
			t.Fatal(name, err)
		}
		if !reflect.DeepEqual(got.Proposals, want.Proposals) || got.Input.Late != 0 ||
			got.Input.Requests != 10_000 {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, got.Input, want.Input)
		}
	}
}

func TestProblemsOfMergedLogs(t *testing.T) {
	good := `{"time":1700000000,"key":"a"}` + "\n"
	o := Options{Proposals: proposals}
	report, err := Run(t.Context(), []io.Reader{strings.NewReader(good),
		strings.NewReader(good + "x\n")}, o)
	want := []UnreadLine{{2, 2, errSyntax.Error(), "x"}}
	if err != nil || !reflect.DeepEqual(report.Input.Examples, want) {
		t.Fatalf("%+v, %v", report, err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(),
		"  log 2, line 2: ") {
		t.Errorf("%v: %s", err, &text)
	}
	broken := errors.New("broken")
	for want, second := range map[error]io.Reader{
		driver.ErrInvalid: strings.NewReader(commonLine),
		broken: io.MultiReader(strings.NewReader(good),
			iotest.ErrReader(broken)),
	} {
		_, err := Run(t.Context(), []io.Reader{strings.NewReader(good), second}, o)
		if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "log 2: ") {
			t.Errorf("%v", err)
		}
	}
}

// TestWarnings checks that keys that are probably wrong are reported.
func TestWarnings(t *testing.T) {
	line := func(client string, i int) string {
		return fmt.Sprintf("%s - - [25/Nov/2026:12:00:%02d +0000] \"GET / HTTP/1.1\" 200 5\n",
			client, i)
	}
	for want, client := range map[string]func(i int) string{
		"nearly every request has a key of its own": func(i int) string {
			return fmt.Sprintf("192.0.2.%d", i)
		},
		"100.0 % of requests have the key 10.0.0.1": func(int) string { return "10.0.0.1" },
		"50 requests of clients with a name": func(i int) string {
			return fmt.Sprintf("%d.example.com", i%7)
		},
		"": func(i int) string { return fmt.Sprintf("192.0.2.%d", i%7) },
	} {
		var log strings.Builder
		for i := range 50 {
			log.WriteString(line(client(i), i))
		}
		report, err := runOne(t.Context(), strings.NewReader(log.String()),
			Options{Proposals: proposals})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(report.Input.Warnings, "\n"); !strings.HasPrefix(got, want) ||
			(got == "") != (want == "") {
			t.Errorf("%q, not %q", got, want)
		}
		var text strings.Builder
		if err := report.WriteText(&text); err != nil ||
			strings.Contains(text.String(), "\nwarning: "+want) != (want != "") {
			t.Errorf("%v: %s", err, &text)
		}
	}
}

func TestTrustedProxies(t *testing.T) {
	log := strings.ReplaceAll(fiveLines(access("10.0.0.1")+"\n", twoClients), `"curl/8.5"`,
		`"curl/8.5" "203.0.113.9, 192.0.2.1, ::ffff:198.51.100.7"`)
	for proxies, want := range map[string]string{
		"": "198.51.100.7", "198.51.100.0/24": "192.0.2.1",
		"198.51.100.0/24,192.0.2.0/24": "203.0.113.9",
	} {
		o := Options{KeyField: "forwarded", Proposals: proposals, TrustedProxies: prefixes(proxies)}
		report, err := runOne(t.Context(), strings.NewReader(log), o)
		if err != nil || report.Proposals[0].WorstKeys[0].Key != want {
			t.Errorf("%q: %+v, %v", proxies, report, err)
		}
	}
	for _, wrong := range []string{"0.0.0.0/0", "::/0", "::ffff:0:0/96"} {
		o := Options{Proposals: proposals, TrustedProxies: prefixes(wrong)}
		if err := o.Validate(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
