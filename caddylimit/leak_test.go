package caddylimit

import (
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
