package fieldstest

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// maxInt is the largest Integer of RFC 9651.
const maxInt = 999_999_999_999_999

func anyInt() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 5000),
		rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, maxInt, maxInt + 1,
			driver.MaxUnits}))
}

func anyDuration() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.OneOf(anyInt(), rapid.Int64Range(0, int64(driver.MaxWindow))),
		func(n int64) time.Duration { return time.Duration(n) })
}

func anyItem() *rapid.Generator[headers.Item] {
	return rapid.Custom(func(t *rapid.T) headers.Item {
		return headers.Item{
			Result: driver.Result{
				Allowed: rapid.Bool().Draw(t, "allowed"),
				Source:  driver.Source(rapid.Uint8Range(0, 3).Draw(t, "source")),
				Limit: driver.Limit{
					Name: rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{1,64}`)).
						Draw(t, "name"),
					Max:    anyInt().Draw(t, "max"),
					Window: anyDuration().Draw(t, "window"),
				},
				Remaining:  anyInt().Draw(t, "remaining"),
				RetryAfter: anyDuration().Draw(t, "retryAfter"),
				ResetAfter: anyDuration().Draw(t, "resetAfter"),
			},
			Unit: rapid.SampledFrom([]headers.Unit{"", headers.ContentBytes,
				headers.ConcurrentRequests, `to"ke\ns`, "\n"}).Draw(t, "unit"),
		}
	})
}

// entry is an expected item of a list.
type entry struct {
	name   string
	params map[string]any
}

// writable reports whether s is a valid String of RFC 9651.
func writable(s string) bool {
	_, err := httpsfv.Marshal(httpsfv.NewItem(s))
	return s != "" && err == nil
}

func clamp(n int64) int64 { return max(0, min(n, maxInt)) }

// ceil returns d in seconds, rounded up, computed differently than in package headers.
func ceil(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d > 0 && d%time.Second != 0 {
		n++
	}
	return max(0, n)
}

func expect(items []headers.Item) (policy, limits []entry) {
	for _, it := range items {
		if !writable(it.Result.Limit.Name) {
			continue
		}
		flight := it.Unit == headers.ConcurrentRequests
		params := map[string]any{"q": clamp(it.Result.Limit.Max)}
		if it.Result.Limit.Window > 0 && !flight {
			params["w"] = ceil(it.Result.Limit.Window)
		}
		if writable(string(it.Unit)) {
			params["qu"] = string(it.Unit)
		}
		policy = append(policy, entry{it.Result.Limit.Name, params})
		if it.Result.Source == driver.SourceOpen {
			continue
		}
		params = map[string]any{"r": clamp(it.Result.Remaining)}
		t := it.Result.RetryAfter
		if it.Result.Allowed {
			t = it.Result.ResetAfter
		}
		if t > 0 && !flight {
			params["t"] = ceil(t)
		}
		limits = append(limits, entry{it.Result.Limit.Name, params})
	}
	return policy, limits
}

func check(t *rapid.T, lines []string, want []entry) {
	if len(want) == 0 {
		if len(lines) != 0 {
			t.Fatalf("an empty list was written as %q, want nothing", lines)
		}
		return
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%q is invalid: %v", lines, err)
	}
	if len(list) != len(want) {
		t.Fatalf("%q has %d items, want %d", lines, len(list), len(want))
	}
	for i, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok || item.Value != want[i].name {
			t.Fatalf("%q: item %d is %v, want %q", lines, i, member, want[i].name)
		}
		if got := len(item.Params.Names()); got != len(want[i].params) {
			t.Fatalf("%q: item %d has %d parameters, want %v", lines, i, got, want[i].params)
		}
		for name, value := range want[i].params {
			if got, _ := item.Params.Get(name); got != value {
				t.Fatalf("%q: %s of item %d is %v, want %v", lines, name, i, got, value)
			}
		}
	}
	// The encoding is canonical: encoding what was read gives the same text.
	again, err := httpsfv.Marshal(list)
	if err != nil || len(lines) == 1 && again != lines[0] {
		t.Fatalf("%q was written, but its encoding is %q, %v", lines, again, err)
	}
}

// TestWriteReadsBack: an independent implementation reads what was written, for all limits and
// results.
func TestWriteReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := http.Header{}
		var items []headers.Item
		for range rapid.IntRange(1, 2).Draw(t, "middlewares") {
			some := rapid.SliceOfN(anyItem(), 0, 4).Draw(t, "items")
			headers.Write(h, headers.Draft11, some...)
			items = append(items, some...)
		}
		policy, limits := expect(items)
		check(t, h["Ratelimit-Policy"], policy)
		check(t, h["Ratelimit"], limits)
	})
}
