package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/upstream"
)

// TestCoolDown: which answers begin a cool-down, and for how long.
func TestCoolDown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		fields []string
		want   time.Duration
	}{
		{"200", 200, nil, 0},
		{"429 alone", 429, nil, upstream.DefaultCoolDown},
		{"403 alone", 403, nil, 0},
		{"503 alone", 503, nil, 0},
		{"429 with units left", 429, []string{"X-RateLimit-Remaining", "5",
			"X-RateLimit-Reset", "9"}, upstream.DefaultCoolDown},
		{"Shopify", 429, []string{"Retry-After", "2.0"}, 2 * time.Second},
		{"Microsoft Graph", 503, []string{"Retry-After", "0.503"}, 503 * time.Millisecond},
		{"Docker Hub", 429, []string{"Retry-After", "946684860"}, time.Minute},
		{"Azure", 429, []string{"Retry-After-Ms", "1500", "Retry-After", "1"},
			1500 * time.Millisecond},
		{"429", 429, []string{"Retry-After", "7"}, 7 * time.Second},
		{"429 with a date", 429, []string{"Retry-After", "Sat, 01 Jan 2000 00:00:30 GMT"},
			30 * time.Second},
		{"429 with a date in the past", 429,
			[]string{"Retry-After", "Fri, 31 Dec 1999 00:00:30 GMT"}, 0},
		{"503", 503, []string{"Retry-After", "7"}, 7 * time.Second},
		{"403, as GitHub answers", 403, []string{"Retry-After", "7"}, 7 * time.Second},
		{"202 asks to poll", 202, []string{"Retry-After", "7"}, 0},
		{"500", 500, []string{"Retry-After", "7"}, 0},
		{"no wait", 429, []string{"Retry-After", "0"}, 0},
		{"no wait at 503", 503, []string{"Retry-After", "0"}, 0},
		{"nonsense", 429, []string{"Retry-After", "soon"}, upstream.DefaultCoolDown},
		{"negative", 429, []string{"Retry-After", "-43"}, upstream.DefaultCoolDown},
		{"capped", 429, []string{"Retry-After", "86400"}, upstream.DefaultMaxCoolDown},
		{"more than a duration holds", 503, []string{"Retry-After", "99999999999999999999"},
			upstream.DefaultMaxCoolDown},
		{"used up", 200, []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "9"},
			9 * time.Second},
		{"used up, X-", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"},
			9 * time.Second},
		{"used up until an instant", 403,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684860"}, time.Minute},
		{"used up until the past", 200,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684000"}, 0},
		{"used up for long", 200,
			[]string{"RateLimit-Remaining", "0", "RateLimit-Reset", "86400"},
			upstream.DefaultMaxCoolDown},
		{"not used up", 200, []string{"RateLimit-Remaining", "1", "RateLimit-Reset", "9"}, 0},
		{"no renewal", 200, []string{"RateLimit-Remaining", "0"}, 0},
		{"renewal alone", 200, []string{"RateLimit-Reset", "9"}, 0},
		{"out of a cache", 200,
			[]string{"RateLimit-Remaining", "0", "RateLimit-Reset", "9", "Age", "3"}, 0},
		{"Retry-After has precedence", 429, []string{"Retry-After", "5",
			"RateLimit-Remaining", "0", "RateLimit-Reset", "9"}, 5 * time.Second},
		{"a malformed Retry-After has none", 429, []string{"Retry-After", "soon",
			"RateLimit-Remaining", "0", "RateLimit-Reset", "9"}, 9 * time.Second},
		{"the longest of several", 200, []string{
			"RateLimit", `"second";r=0;t=1, "day";r=0;t=90, "hour";r=1;t=300`}, 90 * time.Second},
		{"draft-11", 200, []string{"RateLimit-Policy", `"hour";q=100;w=3600`,
			"RateLimit", `"hour";r=0;t=9`}, 9 * time.Second},
		{"draft-11, calls in flight", 429, []string{
			"RateLimit-Policy", `"calls";q=4;qu="concurrent-requests"`,
			"RateLimit", `"calls";r=0;t=9`}, upstream.DefaultCoolDown},
		{"draft-07", 200, []string{"RateLimit", "limit=100, remaining=0, reset=9"},
			9 * time.Second},
		{"GitHub", 403, []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0",
			"X-RateLimit-Used", "60", "X-RateLimit-Resource", "core",
			"X-RateLimit-Reset", "946684860"}, time.Minute},
		{"OpenAI", 200, []string{
			"X-RateLimit-Remaining-Requests", "59", "X-RateLimit-Reset-Requests", "8m30s",
			"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "1m6s"},
			66 * time.Second},
		{"Anthropic", 200, []string{
			"Anthropic-RateLimit-Output-Tokens-Remaining", "0",
			"Anthropic-RateLimit-Output-Tokens-Reset", "2000-01-01T00:00:30Z"}, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) { wantCoolDown(t, tt.status, tt.fields, tt.want) })
	}
}

// wantCoolDown fails unless an answer begins a cool-down of the given length, or none if that is 0.
func wantCoolDown(t *testing.T, status int, fields []string, want time.Duration) {
	t.Helper()
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		opts := upstream.Options{Base: base, Cost: secretKey, NoWait: true}
		rt := newTransport(t, store, opts, ratelimit.PerHour("maps", 100))
		base.say(status, fields...)
		wantStatus(t.Context(), t, rt, status)
		_, err := send(t.Context(), rt)
		switch {
		case want > 0:
			wantLimited(t, err, "maps.cooldown", true, want)
		case err != nil:
			t.Errorf("the next request: %v", err)
		}
	})
}

// TestCoolDownOfServices: what services send begins a cool-down if nothing is left or a request was
// refused, and none if no limit applies or others pay. The clock is at 946684800.
func TestCoolDownOfServices(t *testing.T) {
	const inAMinute, yesterday = "946684860", "946598400"
	unified := func(status, fiveHours, week, overage string) []string {
		return []string{
			"Anthropic-Ratelimit-Unified-Status", status,
			"Anthropic-Ratelimit-Unified-Reset", "946684830",
			"Anthropic-Ratelimit-Unified-5h-Status", fiveHours,
			"Anthropic-Ratelimit-Unified-5h-Reset", "946684830",
			"Anthropic-Ratelimit-Unified-5h-Utilization", "0.42",
			"Anthropic-Ratelimit-Unified-7d-Status", week,
			"Anthropic-Ratelimit-Unified-7d-Reset", inAMinute,
			"Anthropic-Ratelimit-Unified-7d-Utilization", "1.0",
			"Anthropic-Ratelimit-Unified-7d-Surpassed-Threshold", "1.0",
			"Anthropic-Ratelimit-Unified-Representative-Claim", "five_hour",
			"Anthropic-Ratelimit-Unified-Fallback-Percentage", "0.5",
			"Anthropic-Ratelimit-Unified-Overage-Status", overage,
			"Anthropic-Ratelimit-Unified-Overage-Reset", "948000000",
		}
	}
	limits := func(prefix, limit, remaining, reset string) []string {
		return []string{prefix + "Limit", limit, prefix + "Remaining", remaining,
			prefix + "Reset", reset}
	}
	const fallback = upstream.DefaultCoolDown
	for _, tt := range []struct {
		name   string
		status int
		fields []string
		want   time.Duration
	}{
		{"0 of 0", 200, limits("X-RateLimit-", "0", "0", inAMinute), 0},
		{"0 of 0, in seconds", 200, limits("X-RateLimit-", "0", "0", "3600"), 0},
		{"0 of 0, in milliseconds", 200, limits("X-RateLimit-", "0", "0", "946684860000"), 0},
		{"0 of 0, never", 200, limits("X-RateLimit-", "0", "0", "0"), 0},
		{"0.0 of 0.0", 200, limits("X-RateLimit-", "0.0", "0.0", inAMinute), 0},
		{"0 of 0 a minute", 200, limits("X-RateLimit-", "0/minute", "0", inAMinute), 0},
		{"0 of 0, without X-", 200, limits("RateLimit-", "0", "0", "60"), 0},
		{"0 of 0, with two hyphens", 200, limits("X-Rate-Limit-", "0", "0", inAMinute), 0},
		{"0 of 0, quoted", 200, limits("X-RateLimit-", `"0"`, `"0"`, inAMinute), 0},
		{"0 of 0 with a window", 200, limits("RateLimit-", "0;w=60", "0;w=60", "60"), 0},
		{"0 of 0, Envoy", 200, limits("X-RateLimit-", "0, 0;w=60", "0", "60"), 0},
		{"0 of 0, draft-07", 200, []string{"RateLimit", "limit=0, remaining=0, reset=60"}, 0},
		{"0 of 0, draft-11", 200, []string{"RateLimit-Policy", `"free";q=0;w=60`,
			"RateLimit", `"free";r=0;t=60`}, 0},
		{"0 of 0 created", 201, limits("X-RateLimit-", "0", "0", inAMinute), 0},
		{"0 of 0 moved", 302, limits("X-RateLimit-", "0", "0", inAMinute), 0},
		{"0 of 0 not found", 404, limits("X-RateLimit-", "0", "0", inAMinute), 0},
		{"0 of 0 forbidden", 403, limits("X-RateLimit-", "0", "0", inAMinute), 0},
		{"0 of 0 broken", 500, limits("X-RateLimit-", "0", "0", inAMinute), 0},
		{"0 of 0 refused", 429, limits("X-RateLimit-", "0", "0", inAMinute), time.Minute},
		{"0 of 0 refused without a time", 429, limits("X-RateLimit-", "0", "0", ""), fallback},
		{"0 of 0 tokens, OpenAI", 200, []string{"X-RateLimit-Limit-Tokens", "0",
			"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "6m0s"}, 0},
		{"0 of 0 tokens, Anthropic", 200, []string{"Anthropic-RateLimit-Tokens-Limit", "0",
			"Anthropic-RateLimit-Tokens-Remaining", "0",
			"Anthropic-RateLimit-Tokens-Reset", "2000-01-01T00:01:00Z"}, 0},
		{"0 of 0 beside 0 of 10", 200, append(limits("RateLimit-", "0", "0", "90"),
			limits("X-RateLimit-", "10", "0", "9")...), 9 * time.Second},
		{"-1", 200, limits("X-RateLimit-", "-1", "0", inAMinute), 0},
		{"-1 of -1", 200, limits("X-RateLimit-", "-1", "-1", inAMinute), 0},
		{"-1 of 100", 200, limits("X-RateLimit-", "100", "-1", inAMinute), 0},
		{"-1, draft-07", 200, []string{"RateLimit", "limit=-1, remaining=0, reset=60"}, 0},
		{"-1 requests, Azure", 200, []string{"X-RateLimit-Limit-Requests", "-1",
			"X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "60"}, 0},
		{"unlimited", 200, limits("X-RateLimit-", "unlimited", "0", inAMinute), 0},
		{"Unlimited tokens", 200, []string{"X-RateLimit-Limit-Tokens", "Unlimited",
			"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "60s"}, 0},
		{"empty values", 200, limits("X-RateLimit-", "", "", ""), 0},
		{"an empty limit", 200, limits("X-RateLimit-", "", "0", inAMinute), 0},
		{"an empty remainder", 200, limits("X-RateLimit-", "10", "", inAMinute), 0},
		{"null", 200, limits("X-RateLimit-", "null", "0", inAMinute), 0},
		{"a reset in the past", 200, limits("X-RateLimit-", "60", "0", yesterday), 0},
		{"a reset in the past, refused", 429, limits("X-RateLimit-", "60", "0", yesterday),
			fallback},

		{"GitHub", 200, limits("X-RateLimit-", "5000", "0", inAMinute), time.Minute},
		{"GitHub, forbidden", 403, limits("X-RateLimit-", "60", "0", inAMinute), time.Minute},
		{"GitHub, no right", 403, limits("X-RateLimit-", "60", "59", inAMinute), 0},
		{"GitLab", 429, append(limits("RateLimit-", "60", "0", inAMinute),
			"RateLimit-Name", "throttle_authenticated_web", "RateLimit-Observed", "67",
			"Retry-After", "30"), 30 * time.Second},
		{"GitLab, used up", 200, append(limits("RateLimit-", "60", "0", inAMinute),
			"RateLimit-ResetTime", "Sat, 01 Jan 2000 00:01:00 GMT"), time.Minute},
		{"X", 200, limits("X-Rate-Limit-", "900", "0", inAMinute), time.Minute},
		{"Discord", 200, append(limits("X-RateLimit-", "5", "0", "946684801.250"),
			"X-RateLimit-Reset-After", "1.25", "X-RateLimit-Bucket", "abcd"),
			1250 * time.Millisecond},
		{"Atlassian", 200, append(limits("X-RateLimit-", "100", "0", "2000-01-01T00:01Z"),
			"X-RateLimit-NearLimit", "true"), time.Minute},
		{"Jira on one's own servers", 200, []string{"X-RateLimit-Limit", "10",
			"X-RateLimit-Remaining", "0", "X-RateLimit-FillRate", "2",
			"X-RateLimit-Interval-Seconds", "1", "Retry-After", "0"}, 0},
		{"Shopify", 200, []string{"X-Shopify-Shop-Api-Call-Limit", "40/40"}, 0},
		{"Stripe", 429, []string{"Stripe-Rate-Limited-Reason", "global-rate"}, fallback},
		{"Slack", 429, []string{"Retry-After", "30"}, 30 * time.Second},
		{"Docker Hub", 200, []string{"RateLimit-Limit", "100;w=21600",
			"RateLimit-Remaining", "0;w=21600", "Docker-RateLimit-Source", "192.0.2.1"}, 0},
		{"Docker Hub, refused", 429, []string{"RateLimit-Limit", "100;w=21600",
			"RateLimit-Remaining", "0;w=21600"}, fallback},
		{"Zendesk", 200, append(limits("RateLimit-", "700", "0", "41"),
			"X-Rate-Limit", "700", "X-Rate-Limit-Remaining", "0"), 41 * time.Second},
		{"OpenAI", 200, []string{"X-RateLimit-Limit-Requests", "60",
			"X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "17ms"},
			17 * time.Millisecond},

		{"a subscription", 200, unified("allowed", "allowed", "allowed", "rejected"), 0},
		{"a subscription, warned", 200,
			unified("allowed_warning", "allowed", "allowed_warning", "rejected"), 0},
		{"a subscription, used up", 200,
			unified("rejected", "rejected", "allowed", "rejected"), 30 * time.Second},
		{"a subscription, used up twice", 200,
			unified("rejected", "rejected", "rejected", "rejected"), time.Minute},
		{"a subscription, refused", 429,
			unified("rejected", "allowed", "rejected", ""), time.Minute},
		{"a subscription, a window of a model", 200, append(
			unified("rejected", "allowed", "allowed", ""),
			"Anthropic-Ratelimit-Unified-7d_opus-Status", "rejected",
			"Anthropic-Ratelimit-Unified-7d_opus-Reset", "946684890"), 90 * time.Second},
		{"a subscription, no window", 429,
			unified("rejected", "allowed", "allowed", "rejected"), 30 * time.Second},
		{"a subscription that pays overage", 200,
			unified("rejected", "rejected", "allowed", "allowed"), 0},
		{"a subscription in overage", 200, append(unified("rejected", "rejected", "allowed", ""),
			"Anthropic-Ratelimit-Unified-Overage-In-Use", "true"), 0},
		{"a subscription admitted beyond a window", 200,
			unified("allowed", "rejected", "allowed", "allowed"), 0},
		{"a subscription, without a status", 200,
			unified("", "rejected", "allowed", "rejected"), 30 * time.Second},
		{"a subscription, refused for a burst", 429,
			unified("allowed", "allowed", "allowed", "rejected"), fallback},
		{"a subscription, Retry-After", 429, append(
			unified("rejected", "rejected", "allowed", "rejected"), "Retry-After", "7"),
			7 * time.Second},
		{"a subscription, for days", 429, []string{
			"Anthropic-Ratelimit-Unified-Status", "rejected",
			"Anthropic-Ratelimit-Unified-7d-Status", "rejected",
			"Anthropic-Ratelimit-Unified-7d-Reset", "947200000"}, upstream.DefaultMaxCoolDown},
	} {
		t.Run(tt.name, func(t *testing.T) { wantCoolDown(t, tt.status, tt.fields, tt.want) })
	}
}

// TestCoolDownOption: the option says how long a cool-down lasts after an answer that does not,
// such as one of a secondary limit of GitHub. It is within MaxCoolDown.
func TestCoolDownOption(t *testing.T) {
	for _, tt := range []struct {
		status int
		fields []string
		want   time.Duration
	}{
		{200, nil, 0},
		{429, nil, 0},
		{403, []string{"X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "9"}, time.Minute},
		{403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}, 9 * time.Second},
		{403, []string{"Retry-After", "7"}, 7 * time.Second},
		{529, nil, upstream.DefaultMaxCoolDown},
	} {
		bubble(t, func(t *testing.T, store ratelimit.Store) {
			base := newBase()
			rt := newTransport(t, store, upstream.Options{Base: base, Cost: secretKey, NoWait: true,
				CoolDown: func(res *http.Response) time.Duration {
					switch res.StatusCode {
					case 403:
						return time.Minute
					case 529:
						return 24 * time.Hour
					}
					return -1
				}}, ratelimit.PerHour("maps", 100))
			base.say(tt.status, tt.fields...)
			wantStatus(t.Context(), t, rt, tt.status)
			_, err := send(t.Context(), rt)
			switch {
			case tt.want > 0:
				wantLimited(t, err, "maps.cooldown", true, tt.want)
			case err != nil:
				t.Errorf("after %d: %v", tt.status, err)
			}
		})
	}
}

// TestCoolDownNoStorm: while an upstream answers 429 without a time, the workers of two processes
// send no more than one burst for each cool-down.
func TestCoolDownNoStorm(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		const burst, coolDowns = 5, 6
		base := newBase()
		base.say(429)
		opts := upstream.Options{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Millisecond) // all of a burst are sent before the first answer
			return base.RoundTrip(r)
		}), Cost: secretKey}
		ctx, cancel := context.WithTimeout(t.Context(), coolDowns*upstream.DefaultCoolDown)
		defer cancel()
		var all sync.WaitGroup
		for range 2 {
			rt := newTransport(t, store, opts, ratelimit.PerSecond("maps", burst))
			for range 10 {
				all.Go(func() {
					for err := error(nil); err == nil; { // until the deadline
						_, err = send(ctx, rt)
					}
				})
			}
		}
		all.Wait()
		if n := base.count(); n != burst*coolDowns {
			t.Errorf("%d requests were sent, want %d", n, burst*coolDowns)
		}
	})
}

// TestCoolDownShared: the answer to one process stops the requests of all processes for the same
// key, including those that wait already. They continue after the cool-down. Other keys and other
// limits are not affected.
func TestCoolDownShared(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		opts := upstream.Options{Base: base, Margin: noMargin,
			Cost: func(r *http.Request) (string, int64, error) {
				return r.Header.Get("Name"), 1, nil
			}}
		limit := ratelimit.PerSecond("maps", 2)
		one, two := newTransport(t, store, opts, limit), newTransport(t, store, opts, limit)
		other := newTransport(t, store, opts, ratelimit.PerSecond("mail", 2))
		as := func(account string) *http.Request {
			r := get(t.Context())
			r.Header.Set("Name", account)
			return r
		}
		do := func(rt http.RoundTripper, account string, status int) {
			t.Helper()
			res, err := rt.RoundTrip(as(account))
			if err != nil || res.StatusCode != status {
				t.Errorf("%v %v, want %d", res, err, status)
			}
		}
		do(two, "ann", 200)
		release := make(chan struct{})
		slow := opts
		slow.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			<-release
			return base.RoundTrip(r)
		})
		var all sync.WaitGroup
		all.Go(func() { do(newTransport(t, store, slow, limit), "ann", 429) })
		synctest.Wait()
		for range 4 { // two go after a second, two after another one
			all.Go(func() { do(two, "ann", 200) })
		}
		synctest.Wait()
		time.Sleep(time.Second / 2)
		base.say(429, "Retry-After", "30")
		close(release)
		synctest.Wait()
		base.say(200)
		do(one, "bob", 200)
		do(other, "ann", 200)
		if took := time.Since(base.start); took != time.Second/2 {
			t.Errorf("another key or limit waited until %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := one.RoundTrip(as("ann").WithContext(ctx))
		e := wantLimited(t, err, "maps.cooldown", true, 30*time.Second)
		if !errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("%v", e)
		}
		do(one, "ann", 200)
		all.Wait()
		if took := time.Since(base.start); took != 32500*time.Millisecond {
			t.Errorf("the last request was sent after %v", took)
		}
		if most := mostInWindow(base.arrivals[4:], time.Second); most != 2 || base.count() != 9 {
			t.Errorf("a second held %d of 2, of %d requests", most, base.count())
		}
	})
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCoolDownEnd: if two cool-downs overlap, the one that ends later holds, within the maximum of
// each transport. A request whose context has ended still begins one.
func TestCoolDownEnd(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		opts := upstream.Options{Base: base, Cost: secretKey, NoWait: true}
		limit := ratelimit.PerHour("maps", 100)
		long := opts
		long.MaxCoolDown = time.Hour
		rt, patient := newTransport(t, store, opts, limit), newTransport(t, store, long, limit)
		cut := opts
		ctx, cancel := context.WithCancel(t.Context())
		cut.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			// Both are sent before either is answered.
			base.say(429, "Retry-After", "7200")
			wantStatus(context.Background(), t, patient, 429)
			base.say(429, "Retry-After", "3")
			cancel()
			return base.RoundTrip(r)
		})
		wantStatus(ctx, t, newTransport(t, store, cut, limit), 429)
		_, err := send(t.Context(), rt)
		wantLimited(t, err, "maps.cooldown", true, time.Hour)
		time.Sleep(time.Hour)
		base.say(429, "Retry-After", "7200")
		wantStatus(t.Context(), t, rt, 429)
		_, err = send(t.Context(), patient)
		wantLimited(t, err, "maps.cooldown", true, upstream.DefaultMaxCoolDown)

		time.Sleep(time.Hour)
		base.say(429, "Retry-After", "3")
		left, leave := context.WithCancel(t.Context())
		cut.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			leave()
			return base.RoundTrip(r)
		})
		wantStatus(left, t, newTransport(t, store, cut, limit), 429)
		_, err = send(t.Context(), rt)
		wantLimited(t, err, "maps.cooldown", true, 3*time.Second)
	})
}

// TestCoolDownNotRecorded: if the store does not record the cool-down, the caller gets the answer
// as it is, and the observer gets the error.
func TestCoolDownNotRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, memory ratelimit.Store) {
		base := newBase()
		var seen []string
		rt := newTransport(t, forceless{memory}, upstream.Options{
			Base: base, Cost: secretKey,
			Observe: func(_ context.Context, o ratelimit.Observation) {
				seen = append(seen, fmt.Sprint(o.Op, o.N, o.Admitted, o.Err))
			},
		}, ratelimit.PerHour("maps", 100))
		base.say(429, "Retry-After", "3")
		wantStatus(t.Context(), t, rt, 429)
		want := []string{"take 1 true <nil>",
			"force 3000 false " + ratelimit.ErrUnavailable.Error()}
		if !slices.Equal(seen, want) {
			t.Errorf("observed %q, want %q", seen, want)
		}
	})
}

// forceless is a store that is unavailable for what is forced.
type forceless struct{ ratelimit.Store }

func (f forceless) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if d.Op == driver.OpForce {
		return ratelimit.Result{}, ratelimit.ErrUnavailable
	}
	return f.Store.Take(ctx, d)
}
