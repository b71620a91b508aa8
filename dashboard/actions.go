package dashboard

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// actions are what a viewer with the right can do.
var actions = map[string]struct {
	says string
	do   func(*Page, context.Context, *act) error
}{
	"reset":   {"Delete what is recorded and held for the key", (*Page).reset},
	"block":   {"Block the key", (*Page).block},
	"release": {"End the hold and record nothing", (*Page).release},
}

// An act is an action that was asked for.
type act struct {
	Name, Says string
	Limit      string // as it is
	Key        string
	ShownKey   string
	lookup
	For     string   // of a block
	Lasts   string   // of a block: for how long the key is blocked, once it is done
	ID      string   // of a release
	Before  *keyView // what is recorded, of a key
	After   []*keyView
	subject Subject
	length  time.Duration
	held    *ratelimit.Reservation // of a release
}

// Will says what happens once a is confirmed.
func (a *act) Will() string {
	switch a.Name {
	case "reset":
		if a.Before != nil && a.Before.Block {
			return "After it the limit refuses no call of the key, until it is blocked again."
		}
		return "After it all units are free. Calls that run go on, and are not charged for what " +
			"they hold."
	case "block":
		return "After it each call of the key is refused for " + length(a.length) +
			", unless you reset it."
	}
	return "After it what it holds is free, and nothing is charged for it."
}

// action returns what a does.
func (a *act) action() Action {
	done := Action{Name: a.Name, Subjects: []Subject{a.subject}, For: a.length}
	if a.held != nil {
		done.Subjects = nil
		for _, c := range a.held.Claims() {
			done.Subjects = append(done.Subjects, Subject{c.Limiter.Algorithms()[0], c.Key})
		}
	}
	return done
}

const maxForm = 2 << 20 // bytes: an ID has at most 1 MiB, and a key is written as base64

var (
	errForm = errors.New("this form is from another page, or from before a restart: open the " +
		"page again")
	errRight = errors.New("you may not do this")
)

// form reads a form, and checks that it is one of this page. It answers why if it is not.
func (p *Page) form(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		p.fail(w, r, http.StatusRequestEntityTooLarge, err)
	case err != nil:
		p.fail(w, r, http.StatusBadRequest, err)
	case p.cross.Check(r) != nil,
		subtle.ConstantTimeCompare([]byte(r.PostForm.Get("token")), []byte(p.token)) != 1:
		p.fail(w, r, http.StatusForbidden, errForm)
	default:
		return true
	}
	return false
}

func (p *Page) mayWrite(r *http.Request) bool {
	return p.opts.MayWrite != nil && p.opts.MayWrite(r)
}

// act does what a form says, once it is confirmed.
func (p *Page) act(w http.ResponseWriter, r *http.Request) {
	if !p.form(w, r) {
		return
	}
	if !p.mayWrite(r) {
		p.fail(w, r, http.StatusForbidden, errRight)
		return
	}
	a, err := p.read(r)
	if err != nil {
		p.fail(w, r, http.StatusBadRequest, err)
		return
	}
	if r.PostForm.Get("confirmed") == "" {
		if a.subject.Limit != nil {
			a.Before = p.viewOf(r.Context(), a.subject)
		}
		p.write(w, r, http.StatusOK, "confirm", a)
		return
	}
	if a.Name == "release" {
		if a.held, err = p.resume(a.ID); err != nil {
			p.fail(w, r, http.StatusBadRequest, err)
			return
		}
		defer func() { _, _ = a.held.Token() }() // ends its renewals
	}
	if status, err := p.do(r, a); err != nil {
		p.fail(w, r, status, err)
	} else {
		for _, s := range a.action().Subjects {
			a.After = append(a.After, p.viewOf(r.Context(), s))
		}
		p.write(w, r, status, "done", a)
	}
}

// do does an action that is confirmed, and returns the status of the answer.
func (p *Page) do(r *http.Request, a *act) (status int, err error) {
	acting := p.opts.Acting
	if acting == nil {
		acting = func(r *http.Request, _ Action) func(int, error) {
			return func(_ int, err error) { p.log(r, a, err) }
		}
	}
	acted := acting(r, a.action())
	defer func() { acted(status, err) }()
	maySee := p.only(r)
	for _, s := range a.action().Subjects {
		if !maySee(s.Limit.Limit().Name) {
			return http.StatusForbidden, errRight
		}
	}
	err = actions[a.Name].do(p, r.Context(), a)
	switch {
	case err == nil:
		return http.StatusOK, nil
	case errors.Is(err, ratelimit.ErrInvalid), errors.Is(err, ratelimit.ErrInvalidToken):
		return http.StatusBadRequest, err
	}
	return http.StatusServiceUnavailable, err
}

// log logs an action, which has failed if err is not nil.
func (p *Page) log(r *http.Request, a *act, err error) {
	outcome := "done"
	if err != nil {
		outcome = err.Error()
	}
	p.opts.Log.LogAttrs(r.Context(), slog.LevelInfo, "action on the page of limits",
		slog.String("action", a.Name), slog.String("limit", a.Limit),
		slog.String("key_name", p.nameOf(a.Key)), slog.String("for", a.For),
		slog.String("from", r.RemoteAddr), slog.String("outcome", outcome))
}

// nameOf returns the hash of a key in the list of those that are refused most, or "" if there is
// none.
func (p *Page) nameOf(key string) string {
	if p.opts.Top == nil || key == "" {
		return ""
	}
	name := p.opts.Top.Name(key)
	if name == key { // a list of the keys themselves
		return ""
	}
	return name
}

// read reads an action.
func (p *Page) read(r *http.Request) (*act, error) {
	a := &act{Name: r.PostForm.Get("action")}
	known, ok := actions[a.Name]
	if !ok {
		return nil, errors.New("there is no such action")
	}
	a.Says = known.says
	if a.Name == "release" {
		a.ID = r.PostForm.Get("id")
		return a, nil
	}
	a.Limit = r.PostForm.Get("limit")
	var err error
	if a.lookup, err = lookupOf(r); err != nil {
		return nil, err
	}
	if a.Listed == "" {
		key, err := base64.RawURLEncoding.DecodeString(r.PostForm.Get("key"))
		if err != nil {
			return nil, fmt.Errorf("the key: %w", err)
		}
		a.Key, a.ShownKey = string(key), text(string(key))
	}
	found, err := p.find(a.lookup)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(found, func(s Subject) bool {
		return s.Limit.Limit().Name == a.Limit && (s.Key == a.Key || a.Listed != "")
	})
	if i < 0 {
		return nil, errors.New("the limit has no such key any more")
	}
	a.subject = found[i]
	if _, blocks := a.subject.Limit.(algorithm.Block); blocks && a.Name == "reset" {
		a.Says = "Unblock the key"
	}
	if a.Listed != "" {
		_, name, _ := strings.Cut(a.Listed, " ")
		a.Key, a.ShownKey = a.subject.Key, text(name)
	}
	if a.Name == "block" {
		b, ok := a.subject.Limit.(algorithm.Block)
		if !ok {
			return nil, errors.New("the limit does not block keys")
		}
		a.For = r.PostForm.Get("for")
		if a.length, err = time.ParseDuration(a.For); err != nil || a.length <= 0 {
			return nil, fmt.Errorf("%q is not a duration such as 15m", text(a.For))
		}
		if longest := b.Limit().Window; a.length > longest {
			return nil, fmt.Errorf("%v is longer than the limit blocks a key: at most %v", a.length,
				longest)
		}
	}
	return a, nil
}

func (p *Page) reset(ctx context.Context, a *act) error {
	l, err := ratelimit.New(p.opts.Store, a.subject.Limit)
	if err != nil {
		return err
	}
	return l.Reset(ctx, a.Key)
}

func (p *Page) block(ctx context.Context, a *act) error {
	l, err := ratelimit.New(p.opts.Store, a.subject.Limit)
	if err != nil {
		return err
	}
	res, err := l.Force(ctx, a.Key, algorithm.BlockFor(a.length))
	// It lasts longer than was asked for if the key was blocked for longer.
	a.Lasts = length((res.ResetAfter + time.Second - 1).Truncate(time.Second))
	return err
}

// resume returns what an ID of [ratelimit.Reservation.Token] holds.
func (p *Page) resume(id string) (*ratelimit.Reservation, error) {
	var holders []*ratelimit.Limiter
	for _, limit := range p.opts.Limits() {
		if _, ok := limit.(driver.Holder); !ok {
			continue
		}
		l, err := ratelimit.New(p.opts.Store, limit)
		if err != nil {
			return nil, err
		}
		holders = append(holders, l)
	}
	return ratelimit.Resume(id, holders...)
}

// release ends what is held.
func (p *Page) release(ctx context.Context, a *act) error { return a.held.Cancel(ctx) }
