package algorithm

import (
	"embed"

	"github.com/truewindow/ratelimit/driver"
)

// luaFiles has the Lua steps.
//
//go:embed *.lua
var luaFiles embed.FS

// limitArgs are the args of steps that have only their limit: Max and the Window in microseconds.
func limitArgs(dst []int64, d driver.Demand) []int64 {
	limit := d.Algorithm.Limit()
	return append(dst, limit.Max, limit.Window.Microseconds())
}
