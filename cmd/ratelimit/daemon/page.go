package daemon

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/internal/version"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
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
		Store: store.Store.Store, Limits: p.algorithms, Find: p.find, State: p.state, Log: log,
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
		{Name: "store", Value: p.store.Name},
		{Name: "while it is unavailable", Value: cmp.Or(string(p.cmd.OnFailure), "does not fail")},
	}
	if b := p.store.breaker; b != nil {
		s := b.Stats().State
		lines = append(lines, dashboard.Line{Name: "breaker", Value: string(s),
			Bad: s != layer.BreakerClosed})
	}
	if p.store.leases != nil {
		if s := p.store.leases.Stats(); s.Keys > 0 {
			text := fmt.Sprintf("%d hot keys; of %d units taken ahead %d were never used",
				s.Keys, s.Taken, s.Lost)
			lines = append(lines, dashboard.Line{Name: "decides here", Value: text})
		}
	}
	if p.store.local != nil {
		s := p.store.local.Stats()
		lines = append(lines, dashboard.Line{Name: "decides", Value: map[bool]string{
			false: "the store", true: "this process, locally"}[s.Unavailable], Bad: s.Unavailable})
	}
	limits := p.limits()
	if limits.follows == nil {
		return lines
	}
	s := limits.follows.Status()
	loaded := "not loaded yet"
	if !s.Loaded.IsZero() {
		loaded = fmt.Sprintf("loaded %s, hash %s", s.Loaded.UTC().Format(time.DateTime), s.Hash)
	}
	lines = append(lines, dashboard.Line{Name: "limits",
		Value: fmt.Sprintf("%s, %s", limits, loaded), Bad: s.Loaded.IsZero()})
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
			Value: restarts.at.UTC().Format(time.DateTime) + ": " + text})
	}
	if set := limits.decider.Set(); set != nil {
		if text := listed(temporary(set, time.Now())); text != "" {
			lines = append(lines, dashboard.Line{Name: "for a time", Value: text})
		}
	}
	if s.Err != nil {
		lines = append(lines, dashboard.Line{Name: "last load", Value: s.Err.Error(), Bad: true})
	}
	return lines
}
