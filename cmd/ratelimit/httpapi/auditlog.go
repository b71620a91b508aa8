package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// An AuditLog notes who changes what is recorded, and what was recorded before and after.
type AuditLog struct {
	*audit.Trail
	decider *decision.Decider
}

// NewAuditLog returns a log of changes under the limits of a decider.
func NewAuditLog(t *audit.Trail, d *decision.Decider) *AuditLog { return &AuditLog{t, d} }

// A Write is a change of what is recorded, which is noted when it has ended.
type Write struct {
	log   *AuditLog
	event audit.Event
}

// Begin begins a write, whose changes have limits and keys. It looks at these, if the audit is on.
func (l *AuditLog) Begin(ctx context.Context, e audit.Event) *Write {
	w := &Write{l, e}
	for i := range e.Changes {
		c := &e.Changes[i]
		c.Before = w.look(ctx, c)
	}
	return w
}

// End notes that a write has ended, with the status of its answer. It looks at the keys whose state
// is not known if it succeeded.
func (w *Write) End(ctx context.Context, status int, err error) {
	w.event.Status, w.event.Outcome = status, audit.Done
	if err != nil {
		w.event.Outcome, w.event.Error = audit.Failed, err.Error()
	}
	for i := range w.event.Changes {
		if c := &w.event.Changes[i]; err == nil && c.After == nil {
			c.After = w.look(ctx, c)
		}
	}
	w.log.Note(ctx, w.event)
}

// look returns what is recorded, as far as that is known. Programs settle all the time, and so a
// settlement is noted without.
func (w *Write) look(ctx context.Context, c *audit.Change) *audit.State {
	if !w.log.On() || w.event.Action == "settle" || w.event.Action == "release" {
		return nil
	}
	res, err := w.log.decider.Look(ctx, c.Limit, c.Key)
	if err != nil {
		return nil
	}
	return audit.StateOf(res)
}

// eventOf returns an event of a request.
func eventOf(r *http.Request, action string) audit.Event {
	e := audit.Event{Action: action, Door: audit.API, Path: RouteOf(r.URL.Path), From: r.RemoteAddr}
	if IsPage(r.URL.Path) {
		e.Door = audit.Page
	}
	return e
}

// actionOf returns the action of a request that lacks a right. That of a form on the page is only
// in its body.
func actionOf(r *http.Request) string {
	switch needed := Needs(r.URL.Path); {
	case needed == access.ToDecide, needed == access.ToRead, IsPage(r.URL.Path):
		return needed.String()
	}
	return r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] // such as reset, and renew
}

// pageActions are those of forms on the page.
var pageActions = []string{"reset", "block", "release"}

// refuse answers r, which lacks a right, with p, and notes that, with what wanted adds to the
// event.
func (l *AuditLog) refuse(
	w http.ResponseWriter, r *http.Request, p *problem.Problem, wanted func(*audit.Event),
) {
	l.Refuse(r.Context(), func() audit.Event {
		e := eventOf(r, actionOf(r))
		e.Status, e.Error = p.Status, p.Detail
		wanted(&e)
		return e
	})
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", scheme(r.URL.Path)+` realm="ratelimit"`)
	}
	p.Write(w)
}

// changesOf returns a function that adds changes to an event.
func changesOf(changes []audit.Change) func(*audit.Event) {
	return func(e *audit.Event) { e.Changes = changes }
}

// wanted adds to e what a request that is refused would change, as far as its body says it, which
// was not read yet.
func (l *AuditLog) wanted(w http.ResponseWriter, r *http.Request, e *audit.Event) {
	if Needs(r.URL.Path) != access.ToWrite || r.Method != http.MethodPost {
		return
	}
	text, p := readBody(w, r)
	if p != nil {
		return
	}
	var body struct{ Limit, Key string }
	if IsPage(r.URL.Path) {
		form, err := url.ParseQuery(string(text))
		if err != nil {
			return
		}
		if action := form.Get("action"); slices.Contains(pageActions, action) {
			e.Action = action
		}
		decoded, _ := base64.RawURLEncoding.DecodeString(form.Get("key")) // else no key
		body.Limit, body.Key = form.Get("limit"), string(decoded)
	} else {
		_ = json.Unmarshal(text, &body) // what is no such object has no limit
	}
	if limitOf(l.decider, body.Limit) == nil { // another name may be a key
		body.Limit = ""
	}
	if checkKey(&body.Key) != nil {
		body.Key = ""
	}
	if body.Limit != "" || body.Key != "" {
		e.Changes = []audit.Change{{Limit: body.Limit, Key: body.Key}}
	}
}

// event returns an event of q.
func (q *query) event(action string, changes ...audit.Change) audit.Event {
	return audit.Event{Action: action, Door: q.door, Path: q.path, From: q.from, Changes: changes}
}

// forbid returns the answer to a caller who may not make changes.
func (q *query) forbid(changes ...audit.Change) *problem.Problem {
	q.refused = changes
	return otherLimit
}

// mayUse returns the answer to a caller who may not use one of the limits for a key.
func (q *query) mayUse(key string, limits ...string) *problem.Problem {
	caller, changes := access.From(q), []audit.Change{}
	ok := true
	for _, limit := range limits {
		ok = ok && caller.MayUse(limit)
		changes = append(changes, audit.Change{Limit: limit, Key: key})
	}
	if ok {
		return nil
	}
	return q.forbid(changes...)
}

// settled returns the changes of a settlement of claims, which records used of some.
func settled(claims, used []ratelimit.Claim) (changes []audit.Change) {
	for _, c := range claims {
		change := audit.Change{Limit: c.Limiter.Limits()[0].Name, Key: c.Key}
		if holdsUnits(c) {
			units := c.N
			for _, u := range used {
				if u.Limiter == c.Limiter && u.Key == c.Key {
					units = u.N
				}
			}
			change.Held, change.Units = new(c.N), &units
		}
		changes = append(changes, change)
	}
	return changes
}
