package conformance

import (
	"flag"
	"fmt"
	"runtime"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

// TestMain has at least four tests run at once, since they mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", fmt.Sprint(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	leak.Main(m)
}
