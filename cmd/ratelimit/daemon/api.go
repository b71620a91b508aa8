package daemon

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// api answers the daemon's HTTP requests:
//
//	POST /v1/take     takes n units for the key, or none: 200 or 429, and a decision
//	POST /v1/peek     whether take would admit n units, taking nothing: always 200, and a decision
//	POST /v1/reset    deletes what is recorded for the key, or for it under one limit: 204
//	GET  /healthz     200 while the process is up, whatever the state of the store
//	GET  /v1/top-keys the keys that are refused most: 200
//
// and those of budgetPaths, which name limits and are documented in docs/daemon.md. The handler
// around it, metrics.measure, answers those for /metrics.
//
// A request that a browser sends for a page of another site gets 403: the daemon requires no
// credentials, so any page could otherwise use it. See hosts for pages whose host name resolves to
// the daemon's address.
//
// All other answers are problem details (RFC 9457). A request that is undecided and that the policy
// does not admit is a 503, whose type is the documentation of the error; only a request that got
// ErrOutcomeUnknown may have been recorded.
type api struct {
	limiter *ratelimit.Limiter
	limits  []ratelimit.Limit
	budgets *budgets
	top     *topKeys
	log     *slog.Logger
	gate    gate
	origins http.CrossOriginProtection
}

func newAPI(limiter *ratelimit.Limiter, log *slog.Logger) *api {
	return &api{limiter: limiter, limits: limiter.Limits(), budgets: new(budgets), log: log}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if a.origins.Check(r) != nil {
		problem.Problem{Status: http.StatusForbidden,
			Detail: "The request comes from a web page of another site."}.Write(w)
		return
	}
	if answer := answerOf(r.URL.Path); answer != nil {
		answer(a, w, r.WithContext(detached(r.Context())))
		return
	}
	problem.Problem{Status: http.StatusNotFound, Detail: "The paths are /v1/take, /v1/peek, " +
		"/v1/reset, /v1/top-keys, /healthz and /metrics, and for limits by name " +
		budgetPathNames + "."}.Write(w)
}

// detached returns a context for the answer to a request. It does not end, and only the timeout of
// the store bounds a decision: the context of net/http also ends when the client has closed only
// its half of the connection, and then the client still reads.
func detached(client context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(client), clientKey{}, client)
}

// clientKey is the key of the request's own context, which ends when the client disconnects or
// closes its half of the connection.
type clientKey struct{}

// answerOf returns the function that answers requests for a path, or nil.
func answerOf(path string) answerFunc {
	switch path {
	case "/v1/take":
		return (*api).take
	case "/v1/peek":
		return (*api).peek
	case "/v1/reset":
		return (*api).reset
	case "/v1/top-keys":
		return (*api).topKeys
	case "/healthz":
		return (*api).health
	}
	return budgetPaths[path]
}

func (a *api) take(w http.ResponseWriter, r *http.Request) {
	a.decide(w, r, ratelimit.AllowAll, http.StatusTooManyRequests)
}

func (a *api) peek(w http.ResponseWriter, r *http.Request) {
	a.decide(w, r, ratelimit.PeekAll, http.StatusOK)
}

type decideFunc func(context.Context, ...ratelimit.Claim) ([]ratelimit.Result, error)

func (a *api) decide(w http.ResponseWriter, r *http.Request, decide decideFunc, refused int) {
	var key *string
	var units *int64
	f := fields{"n": integer(&units, "n", 1, driver.MaxUnits)}
	if !readDemand(w, r, f, &key) {
		return
	}
	n := int64(1)
	if units != nil {
		n = *units
	}
	switch {
	case n < 1:
		badRequest(integerRule("n", 1, driver.MaxUnits)).Write(w)
		return
	case n > driver.MaxUnits:
		exceedsLimit.Write(w)
		return
	}
	results, err := decide(r.Context(), ratelimit.Claim{Limiter: a.limiter, Key: *key, N: n})
	if err != nil {
		a.fail(w, r, err, ratelimit.Claim{Limiter: a.limiter})
		return
	}
	binding := ratelimit.Binding(results)
	answer := answer{limitState: newLimitState(a.limits[binding], results[binding])}
	for i, res := range results {
		answer.Limits = append(answer.Limits, newLimitState(a.limits[i], res))
	}
	status := http.StatusOK
	if !answer.Allowed {
		status = refused
	}
	if status == http.StatusTooManyRequests {
		problem.SetRetryAfter(w.Header(), results[binding].RetryAfter)
	}
	writeJSON(w, status, answer)
}

// reset deletes what is recorded for the key under the limits of --limit, or under the limit that
// the request names, of any kind.
func (a *api) reset(w http.ResponseWriter, r *http.Request) {
	var key, name *string
	f := fields{"limit": value(&name, limitIsString)}
	if !readDemand(w, r, f, &key) {
		return
	}
	limiter := a.limiter
	if name != nil {
		b := a.budgets.byName[*name]
		if b == nil {
			unknownLimit("The request").Write(w)
			return
		}
		limiter = b.Limiter
		if b.kind == block {
			limiter = b.strict // as for unblock
		}
	}
	if err := limiter.Reset(r.Context(), *key); err != nil {
		a.fail(w, r, err, ratelimit.Claim{Limiter: limiter})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (*api) health(w http.ResponseWriter, r *http.Request) {
	if !methodIsOneOf(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

func methodIsOneOf(w http.ResponseWriter, r *http.Request, allowed ...string) bool {
	if slices.Contains(allowed, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem.Problem{Status: http.StatusMethodNotAllowed}.Write(w)
	return false
}

// answer is the body of a decision: the state of the limit that binds, and that of each limit, in
// the order of the flags.
type answer struct {
	limitState
	Limits []limitState `json:"limits"`
}

// limitState is how one limit decided. Durations are rounded up.
type limitState struct {
	Name         string  `json:"name"`
	WindowMS     float64 `json:"window_ms"` // not whole if the window has microseconds
	Allowed      bool    `json:"allowed"`
	Source       string  `json:"source"` // store, cache, local or open
	Limit        int64   `json:"limit"`
	Remaining    int64   `json:"remaining"`
	RetryAfterMS int64   `json:"retry_after_ms"`
	ResetAfterMS int64   `json:"reset_after_ms"`
}

func newLimitState(l ratelimit.Limit, res ratelimit.Result) limitState {
	return limitState{
		Name:         l.Name,
		WindowMS:     float64(l.Window.Microseconds()) / 1000,
		Allowed:      res.Allowed,
		Source:       res.Source.String(),
		Limit:        res.Limit.Max,
		Remaining:    res.Remaining,
		RetryAfterMS: ceilMS(res.RetryAfter),
		ResetAfterMS: ceilMS(res.ResetAfter),
	}
}

func ceilMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // it fails only if the client has disconnected
}
