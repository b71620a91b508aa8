package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

// TestMain removes the settings of the tests on servers, which are not those of flags.
func TestMain(m *testing.M) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "RATELIMIT_") {
			_ = os.Unsetenv(name)
		}
	}
	leak.Main(m)
}
