// Package httpapi answers the HTTP requests of the service: decisions, settlements, those of
// proxies that ask, and what operators read and write. Package daemon opens what it decides with,
// listens, and has the page and the metrics.
package httpapi

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
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// An API answers the service's HTTP requests, which docs/daemon.md lists, but for those of
// [MetricsPath] and [PagePath].
//
// A request that a browser sends for a page of another site gets 403: the daemon requires no
// credentials, so any page could otherwise use it. See [Hosts] for pages whose host name resolves
// to the daemon's address.
//
// Errors are problem details (RFC 9457). A request that is undecided and that the policy does not
// admit is a 503, whose type is the documentation of the error; only a request that got
// ErrOutcomeUnknown may have been recorded.
type API struct {
	decider   *decision.Decider
	config    func() *config.Config
	log       *slog.Logger
	audit     *AuditLog
	proxies   *ForwardAuth
	ready     *Readiness
	top       *TopKeys
	envoy     http.Handler
	within    bool
	jitter    float64
	origins   http.CrossOriginProtection
	undecided lograte.Limit
}

// Options are what an [API] answers with. Outside of a service, Decider, Config and Log are enough.
type Options struct {
	Decider *decision.Decider
	Config  func() *config.Config // returns nil for limits of flags
	Log     *slog.Logger
	Audit   *audit.Trail // nil: lines of Log, without hashes of keys
	Proxies *ForwardAuth // nil: Caddy
	Ready   *Readiness   // nil: it is always ready
	Top     *TopKeys     // nil: refused keys are not counted
	Envoy   http.Handler // answers Envoy's calls in JSON; nil: none does
	// SettleWithin lets only those who may write settle more than is held.
	SettleWithin bool
	// RetryJitter is the share of [edge.Jitter] for Retry-After; the fields of RateLimit and
	// retry_after_ms stay exact.
	RetryJitter float64
}

// New returns an API with options.
func New(o Options) *API {
	if o.Audit == nil {
		o.Audit = audit.New(o.Log, audit.Options{})
	}
	if o.Proxies == nil {
		o.Proxies = NewForwardAuth("caddy", nil, nil, o.Log)
	}
	if o.Ready == nil {
		o.Ready = NewReadiness(nil)
	}
	return &API{decider: o.Decider, config: o.Config, log: o.Log,
		audit: NewAuditLog(o.Audit, o.Decider), proxies: o.Proxies, ready: o.Ready, top: o.Top,
		envoy: o.Envoy, within: o.SettleWithin, jitter: o.RetryJitter}
}

// posts has what answers the requests for each path whose bodies are JSON.
var posts = map[string]func(*API, *query) (answer, *problem.Problem){
	"/v1/decide":  (*API).decide,
	"/v1/peek":    (*API).peek,
	"/v1/settle":  (*API).settle,
	"/v1/renew":   (*API).renew,
	"/v1/force":   (*API).force,
	"/v1/block":   (*API).block,
	"/v1/reset":   (*API).reset,
	"/v1/explain": (*API).explain,
}

// others has what answers the requests for each other path.
var others = map[string]func(*API, http.ResponseWriter, *http.Request){
	CheckPath:          (*API).check,
	"/v1/top-keys":     (*API).topKeys,
	"/v1/openapi.yaml": (*API).openapi,
	"/json":            (*API).envoyJSON,
	"/healthcheck":     (*API).envoyHealth,
	"/healthz":         (*API).health,
	"/readyz":          (*API).readiness,
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	path := r.URL.Path
	if a.proxies.IsCheck(path) {
		path = CheckPath
	}
	// A proxy that asks before it forwards a request sends the request's own headers.
	if path != CheckPath && a.origins.Check(r) != nil {
		problem.Problem{Status: http.StatusForbidden,
			Detail: "The request comes from a web page of another site."}.Write(w)
		return
	}
	if post, ok := posts[path]; ok {
		a.post(w, r, post)
	} else if other, ok := others[path]; ok {
		other(a, w, r.WithContext(context.WithoutCancel(r.Context())))
	} else {
		problem.Problem{Status: http.StatusNotFound, Detail: "The paths are " +
			strings.Join(Paths(), ", ") + " and " + MetricsPath + "."}.Write(w)
	}
}

// A query is a request whose body is JSON.
type query struct {
	// Context does not end, and only the timeout of the store bounds a decision: that of net/http
	// also ends when the client has closed only its half of the connection, and then the client
	// still reads.
	context.Context
	client context.Context // ends when the client disconnects or closes its half of the connection
	path   string
	door   string
	from   string // the address of the client
	body   []byte
	within bool // settles no more than is held
	// refused is what a request would change that the caller may not change.
	refused []audit.Change
}

// An answer is what a query gets, unless it gets a problem.
type answer struct {
	status     int
	body       any           // as JSON; nil for an answer without a body
	retryAfter time.Duration // 0: the client is not told when to try again
}

func (a *API) post(
	w http.ResponseWriter, r *http.Request,
	by func(*API, *query) (answer, *problem.Problem),
) {
	if !MethodIsOneOf(w, r, http.MethodPost) {
		return
	}
	body, p := readBody(w, r)
	if p != nil {
		p.Write(w)
		return
	}
	q := &query{
		Context: context.WithoutCancel(r.Context()), client: r.Context(), path: r.URL.Path,
		door: audit.API, from: r.RemoteAddr, body: body,
		within: a.within && !access.From(r.Context()).May(access.ToWrite),
	}
	answered, p := by(a, q)
	switch {
	case p == nil:
		answered.write(w, a.jitter)
	case p.Status == http.StatusUnauthorized, p.Status == http.StatusForbidden:
		a.audit.refuse(w, r, p, changesOf(q.refused))
	default:
		p.Write(w)
	}
}

func (a answer) write(w http.ResponseWriter, jitter float64) {
	if a.retryAfter > 0 {
		setRetryAfter(w.Header(), a.retryAfter, jitter)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	writeJSON(w, a.status, a.body)
}

// AnswerBody answers a body for one of the paths of POST outside of a service: with JSON, or
// nothing. The caller is that of ctx.
func (a *API) AnswerBody(ctx context.Context, path string, body []byte) (status int, text []byte) {
	var v any
	answered, p := posts[path](a, &query{Context: ctx, client: ctx, path: path,
		door: audit.Command, body: body})
	switch {
	case p != nil:
		answered.status, v = p.Status, p
	case answered.body == nil:
		return answered.status, nil
	default:
		v = answered.body
	}
	text, _ = json.Marshal(v) // it never fails
	return answered.status, append(text, '\n')
}

func (*API) health(w http.ResponseWriter, r *http.Request) {
	if !MethodIsOneOf(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	writeOK(w)
}

func (a *API) readiness(w http.ResponseWriter, r *http.Request) { a.ready.Answer(w, r) }

func writeOK(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// MethodIsOneOf reports whether the method of r is allowed. If it is not, it has answered r.
func MethodIsOneOf(w http.ResponseWriter, r *http.Request, allowed ...string) bool {
	if slices.Contains(allowed, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem.Problem{Status: http.StatusMethodNotAllowed}.Write(w)
	return false
}

// envoyJSON answers as envoyproxy/ratelimit does.
func (a *API) envoyJSON(w http.ResponseWriter, r *http.Request) {
	if a.envoy == nil {
		noEnvoy.Write(w)
		return
	}
	a.envoy.ServeHTTP(w, r)
}

// envoyHealth is readiness with the path and the status of envoyproxy/ratelimit.
func (a *API) envoyHealth(w http.ResponseWriter, r *http.Request) {
	switch {
	case a.envoy == nil:
		noEnvoy.Write(w)
	case a.ready.problem(r.Context()) != nil:
		http.Error(w, "unavailable", http.StatusInternalServerError)
	default:
		writeOK(w)
	}
}

var noEnvoy = problem.Problem{Status: http.StatusNotFound,
	Detail: "This path is answered only with --grpc-addr."}

// LimitState is how one limit decided. Durations are rounded up.
type LimitState struct {
	Name     string  `json:"name"`
	WindowMS float64 `json:"window_ms"` // not whole if the window has microseconds
	Allowed  bool    `json:"allowed"`
	Source   string  `json:"source"` // store, cache, local or open; none if it was not asked
	Limit    int64   `json:"limit"`
	*Counts          // nil if it was not asked

	Block  bool `json:"block,omitempty"`  // the numbers are milliseconds of a block
	Shadow bool `json:"shadow,omitempty"` // it refuses nothing
	Never  bool `json:"never,omitempty"`  // waiting does not help
	Warned bool `json:"warned,omitempty"` // most units are used
}

// Counts are what the store says of a key. The name is exported for encoding/json.
type Counts struct {
	Remaining    int64 `json:"remaining"`
	RetryAfterMS int64 `json:"retry_after_ms"`
	ResetAfterMS int64 `json:"reset_after_ms"`
}

func newLimitState(l ratelimit.Limit, res ratelimit.Result) LimitState {
	return LimitState{
		Name:     l.Name,
		WindowMS: float64(l.Window.Microseconds()) / 1000,
		Allowed:  res.Allowed,
		Source:   res.Source.String(),
		Limit:    res.Limit.Max,
		Counts: &Counts{
			res.Remaining, ceilMS(res.RetryAfter), ceilMS(res.ResetAfter)},
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
