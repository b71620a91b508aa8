package commands

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit-replay/replay/loggen"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// replayEnv names the page to which the table is written.
const replayEnv = "RATELIMIT_REPLAY_MD"

// TestReplayLargeLog replays generated logs of 20 MB, or with RATELIMIT_FULL=1 of 1 GB, and reports
// lines/s. With 1 GB, it also bounds the peak memory.
func TestReplayLargeLog(t *testing.T) {
	bytes, divisor := int64(20e6), 10
	if depth.Full {
		bytes, divisor = 1e9, 1
	}
	all := strings.Join(algorithms.Names(), ",")
	table := "| format | keys | limits | algorithms | lines/s | peak memory |\n" +
		"|---|---|---|---|---|---|\n"
	for _, c := range []struct {
		format     string
		keys       int
		limits     []string
		algorithms string
		mostMB     int64 // peak memory
	}{
		{"combined", 200_000, []string{"100/1m"}, "log", 192},
		{"json", 200_000, []string{"100/1m"}, "log", 192},
		{"combined", 2_000_000, []string{"100/1m"}, "log", 900},
		{"combined", 200_000, []string{"100/1m", "1000/1h", "10/1s"}, "log", 448},
		{"combined", 200_000, []string{"100/1m"}, all, 384},
	} {
		keys := c.keys / divisor
		name := fmt.Sprintf("%s, %d keys, %d limits, %s",
			c.format, keys, len(c.limits), c.algorithms)
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log") // is removed at the end of the test
			generate(t, log, loggen.Options{Format: c.format, Seed: 1, Keys: keys, Bytes: bytes,
				Start:    time.Date(2026, time.May, 1, 10, 0, 0, 0, time.UTC),
				Interval: 500 * time.Microsecond, Late: time.Second})
			args := []string{"--log", log, "--algorithm", c.algorithms}
			for _, limit := range c.limits {
				args = append(args, "--limit", limit)
			}
			r := runReplay(t, daemon.BuildOf(t, "cmd/ratelimit-replay"), args...)
			lines, refused := r.Input.Requests, r.Proposals[0].Refused
			few := keys > int(lines)/5 // then many keys have no request
			if lines < bytes/300 || r.Input.Lines != lines || r.Input.Keys > keys ||
				!few && r.Input.Keys < keys*8/10 || refused == 0 || refused > lines/2 {
				t.Errorf("got %+v, want %d lines or more, all parsed, %d keys at most, refusals",
					r, bytes/300, keys)
			}
			perSecond, mb := float64(lines)/r.took.Seconds(), r.peak>>10
			servers.Measured("replay, %s: %.2f GB, %d lines of %d keys: %.0f lines/s, "+
				"%v of processors for a line, VmHWM %d MB", name, float64(bytes)/1e9, lines,
				r.Input.Keys, perSecond, r.cpu/time.Duration(lines), mb)
			t.Logf("%.0f lines/s, %d MB", perSecond, mb)
			if depth.Full && (mb == 0 || mb > c.mostMB) {
				t.Errorf("it took %d MB of memory, want at most %d", mb, c.mostMB)
			}
			table += fmt.Sprintf("| %s | %s | %d | %s | %s | %d MB |\n",
				c.format, thousands(c.keys), len(c.limits),
				strings.ReplaceAll(c.algorithms, ",", ", "),
				thousands(int(perSecond/10_000)*10_000), mb)
		})
	}
	if page := os.Getenv(replayEnv); page != "" && depth.Full && !t.Failed() {
		if err := servers.WriteTable(page, "replay", "make replays", table); err != nil {
			t.Error(err)
		}
	}
}

// thousands writes n with commas.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func generate(t *testing.T, name string, o loggen.Options) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := loggen.Write(f, o); err != nil {
		t.Fatal(err)
	}
}

// replayRun is the output and the cost of a run.
type replayRun struct {
	Input struct {
		Lines, Requests int64
		Keys            int
	}
	Proposals []struct{ Refused int64 }

	took time.Duration
	cpu  time.Duration
	peak int64 // VmHWM in kB when progress was last shown; 0 if the process had ended by then
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func runReplay(t *testing.T, bin string, args ...string) (r replayRun) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin,
		append([]string{"--json", "--progress"}, args...)...)
	progress, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan error, 1)
	go func() {
		text, err := io.ReadAll(out)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		said <- err
	}()
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if m := highWater.FindSubmatch(status); m != nil {
			r.peak, _ = strconv.ParseInt(string(m[1]), 10, 64)
		}
	}
	err = <-said
	if ended := cmd.Wait(); ended != nil || err != nil {
		t.Fatalf("%v, %v", ended, err)
	}
	r.took = time.Since(began)
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r
}
