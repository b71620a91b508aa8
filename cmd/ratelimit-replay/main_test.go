package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/ratelimit-replay/replay"
)

var consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

const sampleLog = "replay/testdata/access.log"

// replayed runs the command and returns its output.
func replayed(t *testing.T, wantCode int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code := run(t.Context(), args, &out, &problems)
	if code != wantCode {
		t.Fatalf("%v: exit code %d: %s", args, code, &problems)
	}
	return out.String(), problems.String()
}

// TestReplayDocs runs the commands of docs/replay.md and compares their output. A line with an
// ellipsis on the page stands for any lines.
func TestReplayDocs(t *testing.T) {
	t.Chdir("../..") // where the page runs them
	page, err := os.ReadFile("docs/replay.md")
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	commands := 0
	for _, block := range consoleBlock.FindAllStringSubmatch(string(page), -1) {
		command, want, _ := strings.Cut(strings.TrimPrefix(block[1], "$ ratelimit-replay "), "\n")
		commands++
		args := strings.Fields(strings.ReplaceAll(command, "/tmp", temp))
		got, problems := replayed(t, exitOK, args...)
		parts := strings.Split(want, "…\n")
		ok := problems == "" && len(want) > 0 && strings.HasPrefix(got, parts[0])
		if len(parts) == 1 {
			ok = ok && got == want
		}
		for _, part := range parts[1:] {
			_, got, ok = cutIf(ok, got, part)
		}
		if !ok {
			t.Errorf("%s prints\n%s\nnot\n%s", command, got, want)
		}
	}
	if svg, err := os.ReadFile(filepath.Join(temp, "replay.svg")); err != nil {
		t.Error(err)
	} else if !bytes.Contains(svg, []byte("10/1m, log")) {
		t.Errorf("the picture is %s", svg)
	}
	if commands < 4 {
		t.Errorf("the page has %d commands", commands)
	}
}

func cutIf(ok bool, s, sep string) (before, after string, _ bool) {
	before, after, found := strings.Cut(s, sep)
	return before, after, ok && found
}

func TestReplayUsage(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("time,key\n1,a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"--limit=10/1m", exitUsage, "--log"},
		{"--log=x", exitUsage, "no limit to replay"},
		{"--log=x --limit=10", exitUsage, "MAX/WINDOW"},
		{"--log=x --limit=10/1m --algorithm=log,magic", exitUsage,
			`"magic" is not an algorithm; the algorithms are log`},
		{"--log=x --limit=10/1m --format=xml", exitUsage, `"xml" is not a format`},
		{"--log=x --limit=10/1m --format=common --key-field=agent", exitUsage,
			`the common format has no field "agent"`},
		{"--log=" + filepath.Join(dir, "none") + " --limit=10/1m", exitError, "no such file"},
		{"--log=" + garbage + " --limit=10/1m", exitError, "the first lines are neither"},
		{"--log=" + sampleLog + " --limit=10/1m --svg=" + filepath.Join(dir, "none", "x.svg"),
			exitError, "no such file"},
	} {
		stdout, stderr := replayed(t, tt.code, strings.Fields(tt.args)...)
		if !strings.Contains(stderr, tt.want) || stdout != "" {
			t.Errorf("%s: %s%s", tt.args, stdout, stderr)
		}
	}
}

func TestReplayJSON(t *testing.T) {
	stdout, _ := replayed(t, exitOK, "--log", sampleLog, "--limit=10/1m,50/10m", "--json")
	var report replay.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v:\n%s", err, stdout)
	}
	if in := report.Input; in.Requests != 1000 || in.Keys != 60 || in.Format != replay.Combined ||
		in.KeyField != "client" || len(report.Proposals) != 2 || report.Proposals[1].Refused != 12 {
		t.Errorf("%s", stdout)
	}
}

func TestReplayProgress(t *testing.T) {
	_, stderr := replayed(t, exitOK, "--log", sampleLog, "--limit=10/1m", "--progress")
	if !regexp.MustCompile(`(?m)^100 %  0\.2 MB, 1000 lines, \d+ lines/s\n$`).MatchString(stderr) {
		t.Errorf("progress: %q", stderr)
	}
}

// feed makes a log the standard input until the test ends. If open, the log does not end before
// that.
func feed(t *testing.T, log []byte, open bool) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	os.Stdin = r
	t.Cleanup(func() {
		os.Stdin = stdin
		w.Close()
	})
	go func() {
		_, _ = w.Write(log)
		if !open {
			w.Close()
		}
	}()
}

func TestReplayStandardInput(t *testing.T) {
	want, _ := replayed(t, exitOK, "--log", sampleLog, "--limit=10/1m")
	log, err := os.ReadFile(sampleLog)
	if err != nil {
		t.Fatal(err)
	}
	feed(t, log, false)
	if got, _ := replayed(t, exitOK, "--log=-", "--limit=10/1m"); got != want {
		t.Errorf("got\n%s", got)
	}
}

// stopper ends a run that has shown progress.
type stopper struct {
	bytes.Buffer
	stop func()
}

func (s *stopper) Write(p []byte) (int, error) {
	if !bytes.Contains(p, []byte(" 0 lines")) {
		s.stop()
	}
	return s.Buffer.Write(p)
}

// TestReplayInterrupted interrupts a run before the end of its log: what was read is reported.
func TestReplayInterrupted(t *testing.T) {
	log, err := os.ReadFile(sampleLog)
	if err != nil {
		t.Fatal(err)
	}
	feed(t, bytes.Repeat(log, 4), true)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stderr := &stopper{stop: stop}
	var stdout bytes.Buffer
	code := run(ctx, []string{"--log=-", "--limit=10/1m", "--progress"}, &stdout, stderr)
	if code != exitError ||
		!regexp.MustCompile(`interrupted after [1-9]\d* lines\n$`).MatchString(stderr.String()) ||
		!regexp.MustCompile(`^[1-9],\d{3} requests of 60 keys`).MatchString(stdout.String()) {
		t.Errorf("exit code %d: %s\n%s", code, stderr.String(), stdout.String())
	}
}

func TestReplayInterruptedAtOnce(t *testing.T) {
	feed(t, nil, true)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"--log=-", "--limit=10/1m"}, &stdout, &stderr)
	if code != exitError || stdout.Len() > 0 ||
		stderr.String() != "error: interrupted before anything was read\n" {
		t.Errorf("exit code %d: %s\n%s", code, &stderr, &stdout)
	}
}

// TestReplayOfSeveralLogs checks that logs are replayed as one, in the order of time.
func TestReplayOfSeveralLogs(t *testing.T) {
	whole, _ := replayed(t, exitOK, "--log", sampleLog, "--limit=10/1m")
	log, err := os.ReadFile(sampleLog)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(log, []byte("\n"))
	older, newer := filepath.Join(t.TempDir(), "a,b"), filepath.Join(t.TempDir(), "c")
	for name, part := range map[string][][]byte{older: lines[:500], newer: lines[500:]} {
		if err := os.WriteFile(name, bytes.Join(part, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, progress := replayed(t, exitOK, "--log", newer, "--log", older, "--limit=10/1m",
		"--progress")
	_, wantRefusals, _ := strings.Cut(whole, "\nLimit ")
	_, refusals, _ := strings.Cut(got, "\nLimit ")
	if refusals != wantRefusals || !strings.HasPrefix(got, "1,000 requests of 60 keys") ||
		!strings.Contains(progress, "100 %") {
		t.Errorf("got\n%s\n%s", got, progress)
	}
}

// TestReplayWithoutLines checks that a log without a line that can be read is a failure.
func TestReplayWithoutLines(t *testing.T) {
	for _, tt := range []struct{ log, args, want string }{
		{"", "", "no line could be read: the log is empty"},
		{`{"ts":1,"ip":"a"}`, "", "the first line has: ip, ts"},
		{"x\n", "--format=common", `not in the format of the log; the first line is "x"`},
	} {
		feed(t, []byte(tt.log), false)
		args := append([]string{"--log=-", "--limit=10/1m"}, strings.Fields(tt.args)...)
		stdout, stderr := replayed(t, exitError, args...)
		if !strings.HasPrefix(stdout, "0 requests of 0 keys") || !strings.Contains(stderr,
			tt.want) {
			t.Errorf("%q: %s%s", tt.log, stdout, stderr)
		}
	}
}

func TestReplayTrustedProxies(t *testing.T) {
	const line = `10.0.0.1 - - [25/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-" ` +
		`"192.0.2.1, 10.0.0.2"` + "\n"
	feed(t, []byte(line+line), false)
	stdout, _ := replayed(t, exitOK, "--log=-", "--limit=1/1m", "--key-field=forwarded",
		"--trusted-proxy=10.0.0.0/8,192.168.0.0/16")
	if !strings.Contains(stdout, "\n  192.0.2.1 ") {
		t.Error(stdout)
	}
	_, stderr := replayed(t, exitUsage, "--log=-", "--limit=1/1m", "--trusted-proxy=0.0.0.0/0")
	if !strings.Contains(stderr, "trusted prox") {
		t.Error(stderr)
	}
}

func TestHelpAndVersion(t *testing.T) {
	help, _ := replayed(t, exitOK, "--help")
	for _, want := range []string{
		"--log", "--limit", "--algorithm", "try with each limit: log, gcra,", "--format",
		"--key-field", "request.remote_ip", "--time-field", "--units-field", "--svg", "--json",
		"--progress", "--version", "--trusted-proxy",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("--help does not show %q:\n%s", want, help)
		}
	}
	if version, _ := replayed(t, exitOK, "--version"); strings.TrimSpace(version) == "" {
		t.Error("--version prints nothing")
	}
}

// TestEveryFlagHasHelp: a flag without a text is an error, and so is a text without a flag.
func TestEveryFlagHasHelp(t *testing.T) {
	var noText struct{ Planted bool }
	var noFlags struct{}
	for want, grammar := range map[string]any{
		"--planted has no help text": &noText,
		" is no flag":                &noFlags,
	} {
		_, err := kong.New(grammar, kong.PostBuild(setHelp))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestUnprintable: nothing that a log or an argument has is printed as a terminal would interpret
// it.
func TestUnprintable(t *testing.T) {
	const unprintable = "x\x1b[2J\u009b31m\x07\r\nadmitted\tyes\u202ey\u200b"
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("{\"time\": \"2024-01-01T00:00:00Z\", "+
		"\"key\": \"k\\u001b[2J\\u009b\"}\nno line "+unprintable+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--log=" + unprintable, "--limit=1/1m"},
		{"--log=" + log, "--limit=1/1m", "--key-field=key", "--time-field=time"},
		{"--log=" + log, "--limit=1/1m", "--key-field=" + unprintable},
		{unprintable},
	} {
		var printed bytes.Buffer
		run(t.Context(), args, &printed, &printed)
		if printed.Len() == 0 {
			t.Errorf("%q prints nothing", args)
		}
		for line := range strings.Lines(printed.String()) {
			for _, r := range strings.TrimSuffix(line, "\n") {
				if !strconv.IsPrint(r) {
					t.Errorf("%q prints %q in %q", args, r, line)
				}
			}
			if strings.HasPrefix(line, "admitted\t") || strings.HasPrefix(line, "admittedyes") {
				t.Errorf("%q prints a line of someone else: %q", args, line)
			}
		}
	}
}
