package service

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
)

// A process is what /metrics says of the process of a service.
type process struct {
	goroutines, files int64
	heap              int64 // bytes that were live at the last garbage collection, twice
}

func (p process) String() string {
	return fmt.Sprintf("%d goroutines, %d files, a heap of %.1f MB",
		p.goroutines, p.files, float64(p.heap)/1e6)
}

func processOf(t *testing.T, d *daemon.Daemon) (p process) {
	t.Helper()
	_, page := d.Get(t, "/metrics")
	for name, value := range map[string]*int64{
		"go_goroutines": &p.goroutines, "process_open_fds": &p.files,
		"go_memstats_next_gc_bytes": &p.heap,
	} {
		_, rest, _ := strings.Cut(page, "\n"+name+" ")
		text, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		*value = int64(v)
	}
	return p
}
