package migrating

import (
	"runtime"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

// TestMain collects garbage before it looks for goroutines: ulule's memory store stops its
// goroutine when it is collected.
func TestMain(m *testing.M) { leak.Main(collected{m}) }

type collected struct{ *testing.M }

func (m collected) Run() int {
	code := m.M.Run()
	runtime.GC()
	return code
}
