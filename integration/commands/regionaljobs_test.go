package commands

import (
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestRegionalJobs counts at the upstream what the jobs of the example have used: exactly the
// quota, in one process with a store in memory, and in two processes that share a server.
func TestRegionalJobs(t *testing.T) {
	t.Parallel()
	const quota = 9500
	bin := daemon.BuildOf(t, "integration/examples/regionaljobs")
	t.Run("memory", func(t *testing.T) {
		args := pageArgs(t, "docs/upstream.md", "go -C integration run ./examples/regionaljobs")
		if n := runRegionalJobs(t, bin, 8, args...); n != quota {
			t.Errorf("the upstream has counted %d units, want %d", n, quota)
		}
	})
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		url := "redis://" + server.Addr + "?timeout=10s"
		var units [2]int
		var all sync.WaitGroup
		for i := range units {
			all.Go(func() {
				units[i] = runRegionalJobs(t, bin, 4, "-regions=4", "-store="+url)
			})
		}
		all.Wait()
		if units[0]+units[1] != quota || units[0] == 0 || units[1] == 0 {
			t.Errorf("the upstream has counted %v units, want %d together", units, quota)
		}
	})
}

var (
	countedUnits = regexp.MustCompile(`the upstream has counted (\d+) units\n$`)
	stoppedJob   = regexp.MustCompile(`region \d: \d+ tasks are done, the others can begin in ` +
		`2[34]h`)
)

// runRegionalJobs runs the example until all its jobs stop because the quota is used up, and
// returns what its upstream has counted.
func runRegionalJobs(t *testing.T, bin string, jobs int, args ...string) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), bin, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return 0
	}
	if stopped := len(stoppedJob.FindAll(out, -1)); stopped != jobs {
		t.Errorf("%d jobs have stopped, want %d:\n%s", stopped, jobs, out)
	}
	counted := countedUnits.FindSubmatch(out)
	if counted == nil {
		t.Errorf("no count:\n%s", out)
		return 0
	}
	units, _ := strconv.Atoi(string(counted[1]))
	return units
}
