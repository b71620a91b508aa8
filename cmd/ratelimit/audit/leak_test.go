package audit

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

func TestMain(m *testing.M) {
	// The goroutine of the first signal that is asked for is in no bubble then.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	leak.Main(m)
}
