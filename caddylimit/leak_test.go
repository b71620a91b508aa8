package caddylimit

import (
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

func TestMain(m *testing.M) {
	closesAfter = 0
	leak.Main(m)
}
