package luaconst_test

import (
	"testing"
	"testing/fstest"

	"github.com/truewindow/ratelimit/internal/luaconst"
)

func TestInline(t *testing.T) {
	for name, tt := range map[string]struct{ source, want string }{
		"none": {"local x = 1\n", "local x = 1\n"},
		"one":  {"local SIZE = 12\nreturn n * SIZE\n", "return n * (12)\n"},
		"several": {"local A, A_B = 12, 2 ^ 40\nreturn A + A_B\n",
			"return (12) + (2 ^ 40)\n"},
		"comment":     {"local A = 12 -- bytes\nreturn A\n", "return (12)\n"},
		"whole words": {"local A = 12\nreturn AA + A + B_A\n", "return AA + (12) + B_A\n"},
		"two lines": {"local A = 1\n\nlocal B = 2\nreturn A + B\n",
			"\nreturn (1) + (2)\n"},
		"not at the start": {
			"do\n  local A = 1\nend\n", "do\n  local A = 1\nend\n",
		},
	} {
		if got := luaconst.Inline(tt.source); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestSource(t *testing.T) {
	files := fstest.MapFS{
		"step/main.lua": {Data: []byte("-- Comment.\nlocal A = 1\n" +
			"if x then\n--include part.lua\nend\n")},
		"step/part.lua": {Data: []byte("  -- A comment.\n  x = A -- another\n" +
			"--include more.lua\n")},
		"step/more.lua": {Data: []byte("y = '-- A'\n")},
	}
	want := "if x then\n  x = (1) -- another\ny = '-- (1)'\nend\n"
	if got := luaconst.Source(files, "step/main.lua"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic for a missing file")
		}
	}()
	luaconst.Source(files, "main.lua")
}
