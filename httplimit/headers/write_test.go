package headers_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

var (
	admitted = ratelimit.Result{Allowed: true, Remaining: 59,
		ResetAfter: 59*time.Second + 1}
	refused = ratelimit.Result{RetryAfter: 10*time.Second - 1,
		ResetAfter: time.Minute}
	open  = ratelimit.Result{Allowed: true, Source: ratelimit.SourceOpen}
	local = ratelimit.Result{Allowed: true, Source: ratelimit.SourceLocal,
		Limit: ratelimit.Limit{Max: 15}, Remaining: 14, ResetAfter: time.Second}
)

func minute(res ratelimit.Result) headers.Item {
	return of(ratelimit.PerMinute("minute", 60), res)
}

// of returns res under a limit. Only a share of it has another Max.
func of(limit ratelimit.Limit, res ratelimit.Result) headers.Item {
	if res.Source == ratelimit.SourceLocal {
		limit.Max = res.Limit.Max
	}
	res.Limit = limit
	return headers.Item{Result: res}
}

func TestWriteDraft11(t *testing.T) {
	const policy = `"minute";q=60;w=60`
	bytes := minute(admitted)
	bytes.Unit = headers.ContentBytes
	calls := minute(refused)
	calls.Unit = headers.ConcurrentRequests
	odd := minute(admitted)
	odd.Unit = "a\nb"
	for _, tt := range []struct {
		name           string
		items          []headers.Item
		policy, limits string
	}{
		{"none", nil, "", ""},
		{"admitted", []headers.Item{minute(admitted)}, policy, `"minute";r=59;t=60`},
		{"refused: t is RetryAfter", []headers.Item{minute(refused)},
			policy, `"minute";r=0;t=10`},
		{"all units free: no t", []headers.Item{minute(ratelimit.Result{Allowed: true,
			Remaining: 60})}, policy, `"minute";r=60`},
		{"from the cache", []headers.Item{minute(ratelimit.Result{Source: ratelimit.SourceCache,
			RetryAfter: time.Nanosecond})}, policy, `"minute";r=0;t=1`},
		{"open: policy only", []headers.Item{minute(open)}, policy, ""},
		{"local: the share", []headers.Item{minute(local)},
			`"minute";q=15;w=60`, `"minute";r=14;t=1`},
		{"bytes", []headers.Item{bytes},
			`"minute";q=60;w=60;qu="content-bytes"`, `"minute";r=59;t=60`},
		{"calls in flight", []headers.Item{calls},
			`"minute";q=60;qu="concurrent-requests"`, `"minute";r=0`},
		{"a unit that is not a String", []headers.Item{odd}, policy, `"minute";r=59;t=60`},
		{"two", []headers.Item{
			of(ratelimit.PerSecond("burst", 10), admitted), minute(open),
			of(ratelimit.PerDay("day", 5000), refused)},
			`"burst";q=10;w=1, "minute";q=60;w=60, "day";q=5000;w=86400`,
			`"burst";r=59;t=60, "day";r=0;t=10`},
		{"a window of a millisecond", []headers.Item{of(ratelimit.Limit{Name: "ms", Max: 1,
			Window: time.Millisecond}, admitted)}, `"ms";q=1;w=1`, `"ms";r=59;t=60`},
		{"out of range", []headers.Item{of(ratelimit.Limit{Name: "x", Max: math.MaxInt64,
			Window: math.MinInt64}, ratelimit.Result{Allowed: true,
			Remaining: math.MinInt64, ResetAfter: math.MaxInt64})},
			`"x";q=999999999999999`, `"x";r=0;t=9223372037`},
		{"quotation", []headers.Item{of(ratelimit.Limit{Name: `a"\ b`, Max: 1}, open)},
			`"a\"\\ b";q=1`, ""},
		{"names that are not Strings", []headers.Item{
			of(ratelimit.PerSecond("", 1), admitted),
			of(ratelimit.PerSecond("é", 1), admitted),
			of(ratelimit.PerSecond("a\r\nb", 1), admitted),
			minute(admitted)}, policy, `"minute";r=59;t=60`},
		{"no name at all",
			[]headers.Item{of(ratelimit.PerSecond("", 1), ratelimit.Result{})}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			headers.Write(h, headers.Draft11, tt.items...)
			if got := h.Get("RateLimit-Policy"); got != tt.policy {
				t.Errorf("RateLimit-Policy: %s\nwant              %s", got, tt.policy)
			}
			if got := h.Get("RateLimit"); got != tt.limits {
				t.Errorf("RateLimit: %s\nwant       %s", got, tt.limits)
			}
		})
	}
}

// TestRemainingIsPromised: a client that uses no more than r units within the next t seconds is not
// refused, whether the answer that has r and t was a refusal or not.
func TestRemainingIsPromised(t *testing.T) {
	limit := ratelimit.PerMinute("minute", 20)
	for _, a := range []ratelimit.Algorithm{algorithm.SlidingLog(limit), algorithm.GCRA(limit),
		algorithm.SlidingWindowCounter(limit), algorithm.FixedWindow(limit)} {
		t.Run(a.Name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wantPromises(t, a) })
		})
	}
}

func wantPromises(t *testing.T, a ratelimit.Algorithm) {
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, a)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	take := func(n int64) ratelimit.Result {
		res, err := limiter.AllowN(t.Context(), "k", n)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	refused := 0
	for round := range 500 {
		res := take(1 + random.Int64N(20))
		if !res.Allowed {
			refused++
		}
		h := http.Header{}
		headers.Write(h, headers.Draft11, headers.Item{Result: res})
		q := headers.Parse(h, time.Now())[0]
		for left, end := q.Remaining, time.Now().Add(q.Reset); left > 0; {
			time.Sleep(time.Duration(random.Int64N(int64(time.Until(end)) + 1)))
			n := 1 + random.Int64N(left)
			left -= n
			if res := take(n); !res.Allowed {
				t.Fatalf("round %d: refused %d units after %s", round, n, h.Get("RateLimit"))
			}
		}
		time.Sleep(time.Duration(random.Int64N(int64(time.Minute))))
	}
	if refused == 0 {
		t.Error("no answer was a refusal")
	}
}

// TestWriteTwice: Write adds to the lists of draft-11, and replaces the other fields.
func TestWriteTwice(t *testing.T) {
	h := http.Header{}
	headers.Write(h, headers.Draft11, minute(admitted))
	headers.Write(h, headers.Draft11, of(ratelimit.PerDay("day", 9), open))
	want := http.Header{"Ratelimit-Policy": {`"minute";q=60;w=60`, `"day";q=9;w=86400`},
		"Ratelimit": {`"minute";r=59;t=60`}}
	if fmt.Sprint(h) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", h, want)
	}
	h = http.Header{}
	headers.Write(h, headers.Draft06, minute(admitted))
	headers.Write(h, headers.Draft06, minute(open))
	calls := minute(refused)
	calls.Unit = headers.ConcurrentRequests
	for range 2 {
		headers.Write(h, headers.XDelta, minute(admitted))
		headers.Write(h, headers.XDelta, calls)
	}
	if got := h.Get("X-RateLimit-Remaining") + h.Get("X-RateLimit-Reset"); got != "0" {
		t.Errorf("calls in flight: %v", h)
	}
	h.Del("X-RateLimit-Limit")
	h.Del("X-RateLimit-Remaining")
	if want := (http.Header{"Ratelimit-Limit": {"60"}}); fmt.Sprint(h) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", h, want)
	}
}

// TestWriteOlder: each older format describes the limit that binds, and writes no other fields.
func TestWriteOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Synthetic time begins at a whole second. Half a second more shows the rounding.
		time.Sleep(500 * time.Millisecond)
		epoch := time.Now().Unix() // rounded down
		day := of(ratelimit.PerDay("day", 5000), admitted)
		for _, tt := range []struct {
			format        headers.Format
			items         []headers.Item
			limit, remain string
			reset         int64
		}{
			{headers.Draft06, []headers.Item{minute(admitted)}, "60", "59", 60},
			{headers.Draft06, []headers.Item{day, minute(refused)}, "60", "0", 10},
			{headers.Draft06, []headers.Item{minute(local)}, "15", "14", 1},
			{headers.XDelta, []headers.Item{day, minute(refused)}, "60", "0", 10},
			{headers.XEpoch, []headers.Item{day, minute(refused)}, "60", "0", epoch + 11},
			{headers.XEpoch, []headers.Item{minute(ratelimit.Result{Allowed: true,
				ResetAfter: math.MaxInt64})}, "60", "0", 9223372037},
		} {
			h := http.Header{}
			headers.Write(h, tt.format, tt.items...)
			prefix := "X-Ratelimit-"
			if tt.format == headers.Draft06 {
				prefix = "Ratelimit-"
			}
			want := http.Header{prefix + "Limit": {tt.limit}, prefix + "Remaining": {tt.remain},
				prefix + "Reset": {fmt.Sprint(tt.reset)}}
			if fmt.Sprint(h) != fmt.Sprint(want) {
				t.Errorf("%v: %v, want %v", tt.format, h, want)
			}
		}
	})
	for _, f := range []headers.Format{headers.None, 99} {
		h := http.Header{}
		headers.Write(h, f, minute(admitted))
		if len(h) != 0 {
			t.Errorf("%v writes %v", f, h)
		}
	}
}
