package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/internal/version"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
	"github.com/truewindow/ratelimit/cmd/ratelimit/xds"
	"github.com/truewindow/ratelimit/dashboard"
	"github.com/truewindow/ratelimit/layer"
)

// page is what the page of limits shows of a service.
type page struct {
	*dashboard.Page
	cmd    *Serve
	store  *guardedStore
	limits func() *limits // called when the page is served
}

// newPage returns the page. Close it when the service ends.
func (c *Serve) newPage(
	store *guardedStore, top *httpapi.TopKeys, allowed *access.Table,
	writes func() *httpapi.AuditLog, limits func() *limits, log *slog.Logger,
) (*page, error) {
	p := &page{cmd: c, store: store, limits: limits}
	opts := &dashboard.Options{
		Store: store.Store.Store, Limits: p.algorithms, Find: p.find, State: p.state,
		Rule: p.rule, Try: p.try, Log: log,
		// Who has no credential sees the actions, and is asked for a token when one is wanted.
		MayWrite: func(r *http.Request) bool {
			c := access.From(r.Context())
			if c.Known() || r.URL.Path == "/act" {
				return c.May(access.ToWrite)
			}
			return allowed.HasWriter()
		},
		Acting: func(r *http.Request, a dashboard.Action) func(int, error) {
			return acting(writes(), r, a)
		},
		Only: only,
	}
	if top != nil {
		opts.Top = top.Sketch
	}
	var err error
	p.Page, err = dashboard.New(opts)
	return p, err
}

// before passes on requests that are not for the page.
func (p *page) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case httpapi.IsPage(r.URL.Path):
			p.ServeHTTP(w, r)
		case r.URL.Path+"/" == httpapi.PagePath:
			http.Redirect(w, r, "dashboard/", http.StatusMovedPermanently)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// algorithms returns those of the limits in force.
func (p *page) algorithms() (all []ratelimit.Algorithm) {
	for _, s := range p.ofKey("") {
		all = append(all, s.Limit)
	}
	return all
}

// ofKey returns the limits in force, with the rates of a key.
func (p *page) ofKey(key string) (found []dashboard.Subject) {
	set := p.limits().decider.Set()
	if set == nil {
		return nil
	}
	for _, l := range set.Limits() {
		if v := set.OfKey(l.Name, key); v != nil {
			found = append(found, dashboard.Subject{Limit: v.Algorithm, Key: key})
		}
	}
	return found
}

// find returns the limits that apply to entries such as "tenant=acme plan=pro", or for any other
// text a key under all limits.
func (p *page) find(text string) (found []dashboard.Subject, err error) {
	words := strings.Fields(text)
	if slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(w, "=") }) {
		return p.ofKey(text), nil
	}
	d, err := inspect.ParseDescriptor(words)
	if err != nil {
		return nil, err
	}
	domain, _ := d.Value("domain")
	for _, m := range p.limits().decider.Set().Match(nil, domain, d) {
		if m.Algorithm != nil { // nil for a limit that admits everything or nothing
			found = append(found, dashboard.Subject{Limit: m.Algorithm, Key: m.Key})
		}
	}
	return found, nil
}

// state says how the store and the configuration are.
func (p *page) state() []dashboard.Line {
	lines := []dashboard.Line{
		{Name: "version", Value: version.String()},
		{Name: "store", Value: p.store.Name, Says: p.deciding()},
		{Name: "while it is unavailable", Value: cmp.Or(string(p.cmd.OnFailure), "does not fail")},
	}
	local := p.store.local != nil && p.store.local.Stats().Unavailable
	if b := p.store.breaker; b != nil {
		s := b.Stats().State
		lines = append(lines, dashboard.Line{Name: "breaker", Value: string(s),
			Says: p.outage(s != layer.BreakerClosed && !local),
			Bad:  s != layer.BreakerClosed && !local})
	}
	if p.store.leases != nil {
		if s := p.store.leases.Stats(); s.Keys > 0 {
			text := fmt.Sprintf("%d hot keys; of %d units taken ahead %d were never used",
				s.Keys, s.Taken, s.Lost)
			lines = append(lines, dashboard.Line{Name: "decides here", Value: text})
		}
	}
	if p.store.local != nil {
		line := dashboard.Line{Name: "decides", Value: "the store"}
		if local {
			line.Value, line.Bad = "this process, locally", true
			line.Says = fmt.Sprintf("%s has been unavailable%v: %s, and tries it again.",
				p.storeName(), &p.store.unavailable, share(p.cmd.Instances))
		}
		lines = append(lines, line)
	}
	limits := p.limits()
	if limits.follows == nil {
		return lines
	}
	s := limits.follows.Status()
	loaded, says := "not loaded yet", "No limits are in force yet: calls are errors."
	if !s.Loaded.IsZero() {
		at := s.Loaded.UTC().Format(time.RFC3339)
		loaded = fmt.Sprintf("loaded %s, hash %s", at, s.Hash)
		says = fmt.Sprintf("The limits of %s are in force.", at)
		if s.Err != nil || p.deciding() == "" {
			says = "" // the last line has it, or there is worse to say
		}
	}
	lines = append(lines, dashboard.Line{Name: "limits",
		Value: fmt.Sprintf("%s, %s", limits, loaded), Says: says, Bad: s.Loaded.IsZero()})
	if f, ok := limits.follows.(*xds.Follower); ok {
		text := "connected"
		if !f.Connected() {
			text = "not connected"
		}
		if version := f.Version(); version != "" {
			text += fmt.Sprintf(", version %q is in force", version)
		}
		lines = append(lines, dashboard.Line{Name: "xDS", Value: text, Bad: !f.Connected()})
	}
	if restarts := limits.restarts.Load(); restarts != nil {
		text := restarts.limits[0].Text
		if n := len(restarts.limits) - 1; n > 0 {
			text += fmt.Sprintf("; %d more, which the log has, count from zero too", n)
		}
		lines = append(lines, dashboard.Line{Name: "counts lost",
			Value: restarts.at.UTC().Format(time.RFC3339) + ": " + text})
	}
	if set := limits.decider.Set(); set != nil {
		if text := listed(temporary(set, time.Now())); text != "" {
			lines = append(lines, dashboard.Line{Name: "for a time", Value: text})
		}
	}
	if s.Err != nil {
		lines = append(lines, dashboard.Line{Name: "last load", Value: s.Err.Error(), Bad: true,
			Says: wrong(s)})
	}
	return lines
}

// share says what each of n processes does while it decides locally.
func share(n int) string {
	if n == 1 {
		return "this process decides by itself"
	}
	return fmt.Sprintf("each of %d processes decides by itself, within 1/%d of each limit", n, n)
}

// deciding says what decides, unless the store is unavailable, which other lines say.
func (p *page) deciding() string {
	switch {
	case p.store.local != nil && p.store.local.Stats().Unavailable,
		p.store.breaker != nil && p.store.breaker.Stats().State != layer.BreakerClosed:
		return ""
	case p.store.breaker == nil:
		return "Deciding in " + p.storeName() + "."
	}
	return "Deciding on " + p.storeName() + "."
}

// outage says what happens to calls while the store is unavailable.
func (p *page) outage(is bool) string {
	if !is {
		return ""
	}
	calls := "calls are errors"
	if p.cmd.OnFailure == failOpen {
		calls = "calls are admitted, and count nothing"
	}
	return fmt.Sprintf("%s has been unavailable%v: %s.", p.storeName(), &p.store.failing, calls)
}

// storeName returns the name of the product that the URL of the store begins with.
func (p *page) storeName() string {
	for begin, name := range map[string]string{"redis": "Redis", "rueidis": "Redis",
		"valkey": "Valkey", "postgres": "PostgreSQL", "mysql": "MySQL", "sqlite": "SQLite"} {
		if strings.HasPrefix(p.store.Name, begin) {
			return name
		}
	}
	return p.store.Name
}

// wrong says where a file is wrong, and which limits stay in force.
func wrong(s watch.Status) string {
	says, of, again := s.Err.Error()+".", rules.Problems(nil), ""
	if errors.As(s.Err, &of) && len(of) > 0 {
		at := of[0].At
		says = fmt.Sprintf("%s line %d is wrong: %s.", filepath.Base(at.File), at.Line, of[0].Text)
		if n := len(of) - 1; n > 0 {
			says += fmt.Sprintf(" %d more problems are in the log.", n)
		}
		again = " Correct the file: it is loaded again when it changes."
	}
	if s.Loaded.IsZero() {
		return says + again
	}
	return fmt.Sprintf("%s The limits of %s stay in force.%s", says,
		s.Loaded.UTC().Format(time.RFC3339), again)
}

// try returns a command that the first limit decides.
func (p *page) try() string {
	set := p.limits().decider.Set()
	if set == nil {
		return ""
	}
	descriptor := make(map[string]string)
	for _, l := range set.Limits() {
		if l.ByName || l.Domain != "" {
			continue
		}
		for _, name := range l.Key {
			descriptor[name] = "acme"
		}
		for _, c := range l.When {
			if c.Pattern != "" {
				descriptor[c.Entry] = c.Pattern
			}
		}
		break
	}
	body, err := json.Marshal(map[string]any{"descriptor": descriptor})
	if err != nil { // not of text
		panic(err)
	}
	host, port, err := net.SplitHostPort(p.cmd.Addr)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if p.cmd.TLS.Cert != "" {
		scheme = "https"
	}
	return fmt.Sprintf("curl -d '%s' %s://%s/v1/decide",
		strings.ReplaceAll(string(body), "'", `'\''`), scheme, net.JoinHostPort(host, port))
}

// mostRates is how many rates of a limit the page shows.
const mostRates = 20

// rule returns what the page says of a limit.
func (p *page) rule(name string) (r dashboard.Rule) {
	set := p.limits().decider.Set()
	if set == nil {
		return r
	}
	l := set.Limit(name)
	if l == nil {
		return r
	}
	switch {
	case l.Domain != "": // its descriptors are the key
	case len(l.Key) == 0:
		r.Keys, r.Shared = "for all together", true
	default:
		r.Keys = "for each " + strings.Join(l.Key, " and ")
	}
	if l.By != nil || len(l.Except) > 0 {
		r.Besides = func() string { return besides(set, l) }
	}
	r.Lines = func() []dashboard.Line { return p.lines(set, l) }
	return r
}

// besides returns the rates of a limit that the list does not show for its own.
func besides(set *rules.Set, l *rules.Limit) string {
	shown := set.OfKey(l.Name, "")
	var others []string
	for _, v := range set.Variants() {
		if v.Limit != l || shown != nil && v.Why == shown.Why {
			continue
		}
		text := v.RateText()
		if v.Algorithm != nil {
			text = dashboard.Words(v.Algorithm)
		}
		others = append(others, text+" "+v.Why)
	}
	if len(others) > 2 {
		return fmt.Sprintf("and %d other rates", len(others))
	}
	return strings.Join(others, ", ")
}

// lines returns a limit as its file has it.
func (p *page) lines(set *rules.Set, l *rules.Limit) []dashboard.Line {
	when := make([]string, len(l.When))
	for i, c := range l.When {
		when[i] = c.String()
	}
	lines := []dashboard.Line{
		{Name: "when", Value: cmp.Or(strings.Join(when, ", "), "any request")},
		{Name: "key", Value: cmp.Or(strings.Join(l.Key, ", "), "one for all")},
	}
	rates := 0
	for _, v := range set.Variants() {
		if v.Limit != l {
			continue
		}
		if rates++; rates > mostRates {
			continue
		}
		text := v.RateText()
		if v.Algorithm != nil {
			text = dashboard.Words(v.Algorithm)
		}
		lines = append(lines, dashboard.Line{Name: v.Why, Value: text})
	}
	if rates > mostRates {
		lines = append(lines, dashboard.Line{Name: "and",
			Value: fmt.Sprintf("%d more rates", rates-mostRates)})
	}
	lines = append(lines, dashboard.Line{Name: "algorithm", Value: cmp.Or(l.Algorithm, "log")})
	if l.Holds > 0 {
		lines = append(lines, dashboard.Line{Name: "holds", Value: l.Holds.String()})
	}
	if l.Shadow {
		lines = append(lines, dashboard.Line{Name: "mode", Value: "shadow: it refuses nothing"})
	}
	lines = append(lines, dashboard.Line{Name: "while the store is unavailable",
		Value: cmp.Or(l.OnFailure, string(p.cmd.OnFailure), "it does not fail")})
	if l.At != (rules.Position{}) {
		lines = append(lines, dashboard.Line{Name: "file", Value: l.At.String()})
	}
	return lines
}
