package main

import (
	"strings"
	"testing"
)

// TestCompare: quotients are within a round and by the first entry.
func TestCompare(t *testing.T) {
	const rounds = `goos: linux
BenchmarkLoad/hot/entry=zset-2   100   1000 ns/op   10.0 calls/op
BenchmarkLoad/hot/entry=x-time-rate-2   100   500 ns/op
BenchmarkLoad/hot/entry=x-time-rate   100   7 ns/op
PASS
BenchmarkLoad/hot/entry=zset-2   100   4000 ns/op   0 calls/op
BenchmarkLoad/hot/entry=x-time-rate-2   100   3000 ns/op
BenchmarkLoad/hot/entry=zset-2   100   2000 ns/op   0 calls/op
BenchmarkLoad/hot/entry=x-time-rate-2   100   2000 ns/op
`
	const want = `
| Load/hot, 2 CPUs | ns/op | calls/op |
|---|---|---|
| zset | 2000 | 0 |
| x-time-rate | 2000 ×0.75 [0.5–1] | – |

| Load/hot, 1 CPUs | ns/op |
|---|---|
| x-time-rate | 7 |
`
	var got strings.Builder
	if err := compare(strings.NewReader(rounds), &got); err != nil || got.String() != want {
		t.Errorf("got %v,\n%s\nwant\n%s", err, got.String(), want)
	}
}
