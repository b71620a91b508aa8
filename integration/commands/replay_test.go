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

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/algorithms"
	"github.com/truewindow/ratelimit/internal/replay/loggen"
)

// TestReplayLargeLog replays a generated log of 20 MB, or with RATELIMIT_FULL=1 of 1 GB, and
// reports the lines a second. With 1 GB, it checks that memory depends on the number of keys only.
func TestReplayLargeLog(t *testing.T) {
	bytes, keys := int64(20e6), 20_000
	if servers.Full {
		bytes, keys = 1e9, 200_000
	}
	all := strings.Join(algorithms.Names(), ",")
	for _, c := range []struct{ format, algorithms string }{
		{"combined", "log"}, {"json", "log"}, {"combined", all},
	} {
		t.Run(c.format+" "+c.algorithms, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log") // is removed at the end of the test
			generate(t, log, loggen.Options{Format: c.format, Seed: 1, Keys: keys, Bytes: bytes,
				Start:    time.Date(2026, time.May, 1, 10, 0, 0, 0, time.UTC),
				Interval: 500 * time.Microsecond, Late: time.Second})
			r := runReplay(t, daemon.Build(t), "--log", log, "--limit", "100/1m",
				"--algorithm", c.algorithms)
			lines, refused := r.Input.Requests, r.Proposals[0].Refused
			if lines < bytes/300 || r.Input.Lines != lines || r.Input.Keys < keys*8/10 ||
				refused == 0 || refused > lines/2 {
				t.Errorf("%+v", r)
			}
			measured := fmt.Sprintf("replay, %s, %s: %.2f GB, %d lines of %d keys: %.0f lines/s, "+
				"%v of processors for a line, VmHWM %d MB", c.format, c.algorithms,
				float64(bytes)/1e9, lines,
				r.Input.Keys, float64(lines)/r.took.Seconds(), r.cpu/time.Duration(lines), r.peak>>10)
			servers.Measured("%s", measured)
			t.Log(measured)
			most := int64(128+64*len(r.Proposals)) << 10
			if servers.Full && (r.peak == 0 || r.peak > most) {
				t.Errorf("it took %d kB of memory", r.peak)
			}
		})
	}
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
		append([]string{"replay", "--json", "--progress"}, args...)...)
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
