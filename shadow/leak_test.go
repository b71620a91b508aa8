package shadow

import (
	"testing"

	"github.com/truewindow/ratelimit/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
