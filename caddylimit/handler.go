package caddylimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/httplimit"
)

func init() { caddy.RegisterModule(new(Handler)) }

// A Handler passes on the requests that all its limits admit, and answers the others as package
// [httplimit] does. All its limits are decided as one: if one of them refuses a request, none is
// charged.
type Handler struct {
	// Store is the URL of the store, such as "redis://:{env.REDIS_PASSWORD}@10.0.0.7", as
	// [github.com/truewindow/ratelimit/backend.Open] reads it. Placeholders such as {env.NAME} are
	// replaced when the configuration is loaded. The default is "memory". All handlers with the
	// same URL share a store, and it outlives a reload.
	Store string `json:"store,omitempty"`

	// Limits has the limits, at least one, with different names.
	Limits []Limit `json:"limits,omitempty"`

	// OnFailure says what happens to requests while the store is unavailable: with "closed", the
	// default, they are answered with 503, and with "open" passed on.
	OnFailure string `json:"on_failure,omitempty"`

	// HandleErrors returns an error with the status of the answer to the server in place of
	// answering, so that the server's error routes answer. They have the placeholders
	// {http.limits.reason}, {http.limits.names} and {http.limits.retry_after}.
	HandleErrors bool `json:"handle_errors,omitempty"`

	rules   []rule
	store   *store
	replace bool         // the rules have placeholders for the replacer
	limited http.Handler // the rules around pass
	logger  *zap.Logger
	release func() error // gives the store back
}

// A rule is a limit that is ready for requests.
type rule struct {
	limiter *ratelimit.Limiter
	counted *counters
	key     keyPart // nil if the key is that of the rule before
	cost    cost
}

// CaddyModule returns the ID of the module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.limits",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision opens the store, or finds it open. It does not wait for a server. An error is a
// [*ConfigError] if the configuration is wrong.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	if err := h.check(); err != nil {
		return err
	}
	url := h.Store
	if url == "" {
		url = defaultStore
	}
	store, release, err := openStore(ctx, url, h.logger)
	if err != nil {
		return err
	}
	h.release = release
	for i, l := range h.Limits {
		r, err := h.rule(l, store)
		if err != nil {
			return err
		}
		if i > 0 && l.sameKey(h.Limits[i-1]) {
			r.key = nil
		}
		h.rules = append(h.rules, r)
		h.replace = h.replace || l.replaces()
	}
	h.store = store
	h.limited = httplimit.New(h.claims, httplimit.WithRefusal(refuse))(http.HandlerFunc(pass))
	return register(ctx.GetMetricsRegistry())
}

// check returns a [*ConfigError] if the configuration is wrong whatever the store is.
func (h *Handler) check() error {
	if h.OnFailure != "" && h.OnFailure != "open" && h.OnFailure != "closed" {
		return &ConfigError{Field: "on_failure",
			Err: fmt.Errorf("%q is neither open nor closed", h.OnFailure)}
	}
	if len(h.Limits) == 0 {
		return &ConfigError{Field: "limit", Err: errors.New("write at least one, such as " +
			"limit api 100/1m")}
	}
	names := make(map[string]bool)
	for _, l := range h.Limits {
		if err := l.check(); err != nil {
			return err
		}
		if names[l.Name] {
			return l.wrong("name", "two limits of one handler have it")
		}
		names[l.Name] = true
	}
	return nil
}

// check returns a [*ConfigError] if the limit is wrong.
func (l Limit) check() error {
	a, err := l.algorithm()
	if err != nil {
		return err
	}
	if _, err := l.key(); err != nil {
		return err
	}
	_, err = l.cost(a.Limit().Max)
	return err
}

// rule returns the rule of a limit that is checked.
func (h *Handler) rule(l Limit, store *store) (r rule, err error) {
	a, err := l.algorithm()
	if err != nil {
		return r, err
	}
	if r.key, err = l.key(); err != nil {
		return r, err
	}
	if r.cost, err = l.cost(a.Limit().Max); err != nil {
		return r, err
	}
	limiter, err := ratelimit.New(store.Store, a)
	if err != nil {
		return r, &ConfigError{l.Name, "max", err}
	}
	if h.OnFailure == "open" {
		limiter = limiter.WithPolicy(ratelimit.FailOpen)
	}
	r.limiter, r.counted = limiter, newCounters(l.Name, edge.InFlight(a))
	return r, nil
}

// claims returns the claims of a request.
func (h *Handler) claims(r *http.Request) ([]ratelimit.Claim, error) {
	var repl *caddy.Replacer
	if h.replace {
		repl, _ = r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	}
	claims := make([]ratelimit.Claim, 0, len(h.rules))
	var key string
	for i := range h.rules {
		rule := &h.rules[i]
		var err error
		if rule.key != nil {
			key, err = rule.key(r, repl)
		}
		var n int64
		if err == nil {
			n, err = rule.cost(repl)
		}
		if err != nil {
			h.logger.Debug("a request cannot be attributed",
				zap.String("limit", h.Limits[i].Name), zap.Error(err))
			return nil, err
		}
		if n > 0 {
			claims = append(claims, ratelimit.Claim{Limiter: rule.limiter, Key: key, N: n})
		}
	}
	return claims, nil
}

// ServeHTTP limits a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h.store.begin()
	defer h.store.end()
	c := &call{ResponseWriter: w, handler: h, request: r, next: next}
	h.limited.ServeHTTP(c, r)
	return c.err
}

// A call is a request on its way through package httplimit. It is the ResponseWriter there, by
// which pass and refuse find it.
type call struct {
	http.ResponseWriter
	handler *Handler
	request *http.Request
	next    caddyhttp.Handler
	err     error // of next or of refuse
}

// pass passes on the request and the ResponseWriter that the server knows, not those that it gets:
// placeholders read that request, and handlers find optional methods of that ResponseWriter.
func pass(w http.ResponseWriter, r *http.Request) {
	c := w.(*call)
	if d, ok := httplimit.FromContext(r.Context()); ok {
		c.handler.count(d)
	}
	c.err = c.next.ServeHTTP(c.ResponseWriter, c.request)
}

// refuse answers a request that is not passed on, or lets the server answer.
func refuse(w http.ResponseWriter, r *http.Request, d httplimit.Decision) {
	c := w.(*call)
	c.handler.count(d)
	if !c.handler.HandleErrors {
		httplimit.Refuse(w, d)
		return
	}
	w.Header().Set("Cache-Control", "no-store") // as in the answers of package httplimit
	refusal := d.Refusal()
	names := make([]string, len(refusal.Limits))
	for i, l := range refusal.Limits {
		names[i] = l.Name
	}
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set("http.limits.reason", refusal.Reason.String())
		repl.Set("http.limits.names", strings.Join(names, ","))
		repl.Set("http.limits.retry_after", w.Header().Get("Retry-After"))
	}
	c.err = caddyhttp.Error(d.Status(),
		fmt.Errorf("limits: %v %s", refusal.Reason, strings.Join(names, ",")))
}

// count counts a decision, and warns of an outage. An observer of the limiters would take a quarter
// of the time of a request.
func (h *Handler) count(d httplimit.Decision) {
	if errors.Is(d.Err, httplimit.ErrUnattributed) {
		return
	}
	if d.Err != nil && d.Refusal().Reason == edge.Undecided {
		h.store.warnOf(refused, h.logger, d.Err)
	}
	allowed, next := d.Allowed(), 0
	for i := range h.rules {
		if d.Err != nil {
			h.rules[i].counted.failed()
			continue
		}
		// A limit has no result if it does not apply to the request.
		if next == len(d.Results) || d.Results[next].Limit.Name != h.Limits[i].Name {
			continue
		}
		res := &d.Results[next]
		next++
		h.rules[i].counted.decided(res, allowed)
		if res.Source == ratelimit.SourceOpen {
			h.store.warnOf(admitted, h.logger, nil)
		}
	}
}

// Cleanup gives the store back. The last configuration that has it closes it.
func (h *Handler) Cleanup() error {
	if h.release == nil {
		return nil
	}
	return h.release()
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
