package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit"
)

// TestFromContext: handlers get the decision, also from derived contexts, and no decision if the
// request was not limited.
func TestFromContext(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerMinute("minute", 9),
		ratelimit.PerHour("hour", 8), ratelimit.PerDay("day", 7))
	skip := false
	type name struct{}
	calls := 0
	h := httplimit.New(func(*http.Request) ([]ratelimit.Claim, error) {
		if skip {
			return nil, nil
		}
		return []ratelimit.Claim{{Limiter: limiter, Key: secret, N: 2}}, nil
	})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls++
		ctx, cancel := context.WithCancel(context.WithValue(r.Context(), name{}, "inner"))
		defer cancel()
		d, ok := httplimit.FromContext(ctx)
		if r.Context().Value(name{}) != "outer" || r.PathValue("id") != "7" {
			t.Error("the request has lost its own values")
		}
		if skip {
			if ok || d.Results != nil {
				t.Errorf("a decision without a limit: %+v", d)
			}
			return
		}
		var got []string
		for _, res := range d.Results {
			got = append(got, fmt.Sprint(res.Limit.Name, res.Remaining))
		}
		if !ok || fmt.Sprint(got) != "[minute7 hour6 day5]" || !d.Allowed() ||
			d.Status() != 200 || d.RetryAfter() != 0 {
			t.Errorf("%t %v %d", ok, got, d.Status())
		}
		if strings.Contains(fmt.Sprintf("%+v", d), secret) {
			t.Error("the decision holds the key")
		}
	}))
	r := get()
	r.SetPathValue("id", "7")
	r = r.WithContext(context.WithValue(r.Context(), name{}, "outer"))
	serve(h, r)
	skip = true
	serve(h, r)
	if calls != 2 {
		t.Errorf("%d calls of the handler", calls)
	}
	if _, ok := httplimit.FromContext(r.Context()); ok {
		t.Error("the caller's request was changed")
	}
}

// TestContextEnds: the context that handlers get ends with the request's.
func TestContextEnds(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerMinute("minute", 9))
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	h := httplimit.New(claiming(one(limiter)))(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			below, stop := context.WithTimeout(r.Context(), time.Hour)
			defer stop()
			cancel(gone)
			<-below.Done()
			if context.Cause(below) != gone {
				t.Errorf("cause %v", context.Cause(below))
			}
		}))
	serve(h, get().WithContext(ctx))
}

// TestRefusal: a function of WithRefusal gets the request and the decision after the fields are
// set, and may call Refuse.
func TestRefusal(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerMinute("minute", 1))
	var err error
	h := httplimit.New(func(*http.Request) ([]ratelimit.Claim, error) {
		return []ratelimit.Claim{one(limiter)}, err
	}, httplimit.WithRefusal(func(w http.ResponseWriter, r *http.Request, d httplimit.Decision) {
		if errors.Is(d.Err, httplimit.ErrUnattributed) && errors.Is(d.Err, err) {
			httplimit.Refuse(w, d)
			return
		}
		w.WriteHeader(d.Status())
		fmt.Fprint(w, r.URL.Path, d.RetryAfter(), d.Results[0].Limit.Name)
	}))(passed)
	serve(h, get())
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, get())
	if rec.Code != 429 || rec.Body.String() != "/path1m0sminute" ||
		rec.Header().Get("Retry-After") != "60" || rec.Header().Get("RateLimit") == "" {
		t.Errorf("%d %s %v", rec.Code, rec.Body, rec.Header())
	}
	err = errors.New(secret)
	checkProblem(t, serve(h, get()), 400)
}

// TestRefuse: the answer of Refuse to each decision.
func TestRefuse(t *testing.T) {
	of := func(res ratelimit.Result) httplimit.Decision {
		return httplimit.Decision{Results: []ratelimit.Result{res}}
	}
	for _, tt := range []struct {
		name   string
		d      httplimit.Decision
		status int
		retry  string
	}{
		{"refused", of(ratelimit.Result{RetryAfter: 61 * time.Second}), 429, "61"},
		{"refused by the cache", of(ratelimit.Result{Source: ratelimit.SourceCache}), 429,
			"1"},
		{"unavailable", httplimit.Decision{Err: ratelimit.ErrOutcomeUnknown}, 503, "1"},
		{"exceeds", httplimit.Decision{Err: ratelimit.ErrExceedsLimit}, 422, ""},
		{"unattributed", httplimit.Decision{Err: httplimit.ErrUnattributed}, 400, ""},
		{"other", httplimit.Decision{Err: errors.New(secret)}, 500, ""},
		{"allowed", of(ratelimit.Result{Allowed: true}), 500, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			httplimit.Refuse(rec, tt.d)
			checkProblem(t, rec.Result(), tt.status)
			wantField(t, rec.Result(), "Retry-After", tt.retry)
		})
	}
}

// TestReducedShare: a refusal says that the limits are lower than usual only if each limit that
// refuses is reduced to a share.
func TestReducedShare(t *testing.T) {
	refusal := func(most int64) ratelimit.Result {
		return ratelimit.Result{Source: ratelimit.SourceLocal,
			Limit: ratelimit.Limit{Name: "a", Max: most}, RetryAfter: 2 * time.Second}
	}
	for _, tt := range []struct {
		name    string
		results []ratelimit.Result
		status  int
	}{
		{"a share", []ratelimit.Result{refusal(3), {Allowed: true}}, 503},
		{"a share and a whole limit", []ratelimit.Result{refusal(3), refusal(9)}, 429},
		{"all of one process", []ratelimit.Result{refusal(9), refusal(9)}, 429},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter := newLimiter(t, answers(tt.results), ratelimit.PerDay("a", 9),
				ratelimit.PerHour("b", 9))
			rec := httptest.NewRecorder()
			httplimit.Handler(limiter, secretKey, http.NotFoundHandler()).ServeHTTP(rec, get())
			checkProblem(t, rec.Result(), tt.status)
			wantField(t, rec.Result(), "Retry-After", "2")
		})
	}
}

// answers is a store that gives these answers.
type answers []ratelimit.Result

func (a answers) Take(context.Context, driver.Demand) (ratelimit.Result, error) { return a[0], nil }

func (a answers) TakeAll(
	_ context.Context, _ []driver.Demand, out []ratelimit.Result,
) error {
	copy(out, a)
	return nil
}
