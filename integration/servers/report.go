package servers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// began is the start of the run: "make test" passes its own.
var began = func() time.Time {
	if seconds, err := strconv.ParseInt(os.Getenv("RATELIMIT_BEGAN"), 10, 64); err == nil {
		return time.Unix(seconds, 0)
	}
	return time.Now()
}()

// folder is the name of the folder whose tests this process runs.
var folder = func() string {
	dir, err := os.Getwd()
	if err != nil {
		return "tests"
	}
	return filepath.Base(dir)
}()

// progressEnv names a file to which all processes of a run append their progress lines.
const progressEnv = "RATELIMIT_PROGRESS"

// say prints a line with the time since the run began.
func say(format string, args ...any) {
	d := time.Since(began)
	line := fmt.Sprintf("%d:%02d %s: ", int(d.Minutes()), int(d.Seconds())%60, folder) +
		fmt.Sprintf(format, args...) + "\n"
	if name := os.Getenv(progressEnv); name != "" {
		if file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644); err == nil {
			defer file.Close()
			if _, err := file.WriteString(line); err == nil {
				return
			}
		}
	}
	fmt.Print(line)
}

// measuredDir has a file for each folder with the measurements of its tests.
const measuredDir = Module + "/integration/measured"

// ran counts what ran on servers.
var ran report

type report struct {
	mu      sync.Mutex
	tests   int
	latest  string         // test that began last
	skipped map[string]int // number of tests by reason
	servers []string       // servers that tests ran on, without duplicates
	lines   []string       // measurements
}

// CountTest counts a test that runs on a server.
func CountTest(t testing.TB, server string) {
	ran.mu.Lock()
	defer ran.mu.Unlock()
	ran.tests++
	ran.latest = t.Name()
	if !slices.Contains(ran.servers, server) {
		ran.servers = append(ran.servers, server)
	}
}

func (r *report) skip(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.skipped == nil {
		r.skipped = make(map[string]int)
	}
	r.skipped[reason]++
}

// Measured adds a line to the folder's file in measuredDir.
func Measured(format string, args ...any) {
	ran.mu.Lock()
	defer ran.mu.Unlock()
	ran.lines = append(ran.lines, fmt.Sprintf(format, args...))
}

// progress prints every half minute how many tests have run, until stop is called.
func (r *report) progress() (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(30 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
			r.mu.Lock()
			tests, latest := r.tests, r.latest
			r.mu.Unlock()
			if tests > 0 {
				say("%d tests on servers so far, the latest is %s", tests, latest)
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

// finish writes the measurements to their file and prints what ran. It returns the number of
// skipped tests.
func (r *report) finish() (skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		say("skipped %d: %s", r.skipped[reason], reason)
		skipped += r.skipped[reason]
	}
	if r.tests == 0 && skipped == 0 {
		return 0
	}
	summary := fmt.Sprintf("%d tests on servers ran", r.tests)
	if len(r.servers) > 0 {
		slices.Sort(r.servers)
		summary += " on " + strings.Join(r.servers, ", ")
	}
	summary += fmt.Sprintf("; %d skipped", skipped)
	if len(r.lines) > 0 {
		if path, err := r.write(); err != nil {
			summary += fmt.Sprintf("; measurements are lost: %v", err)
		} else {
			summary += "; measurements are in " + path
		}
	}
	say("%s", summary)
	return skipped
}

// write writes the measurements to the folder's file and returns its path.
func (r *report) write() (string, error) {
	path, err := filepath.Abs(filepath.Join(measuredDir, folder+".txt"))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	slices.Sort(r.lines)
	return path, os.WriteFile(path, []byte(strings.Join(r.lines, "\n")+"\n"), 0o644)
}
