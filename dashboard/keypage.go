package dashboard

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxFound is under how many limits a key is looked up: each costs up to maxSteps+1 peeks.
const maxFound = 100

// A keyPage is what all limits say of a key.
type keyPage struct {
	Shown      string // the key, or its hash
	Typed      string // "" if it cannot be shown as it is
	Says       []string
	Problems   []template.HTML // which may be why a limit could not be looked up
	Refused    bool
	Failed     bool // a limit could not be looked up
	Limits     []*keyView
	Plots      []*keyView // those whose units are not all free
	CanWrite   bool
	CanRelease bool
	RefusedAs  string
	lookup
}

// A lookup is what a form asks for: a text that a viewer has typed, or a key of the list of those
// that are refused most.
type lookup struct {
	Query  string // what was typed
	Narrow string // a part of the names of limits
	Listed string // a limit and the name of a key, with a space between
}

// lookupOf reads a form, which has a text as a viewer types it, or in base64 as other bytes.
func lookupOf(r *http.Request) (a lookup, err error) {
	a = lookup{Query: r.PostForm.Get("q"), Narrow: r.PostForm.Get("narrow")}
	for field, to := range map[string]*string{"query": &a.Query, "refused": &a.Listed} {
		decoded, err := base64.RawURLEncoding.DecodeString(r.PostForm.Get(field))
		if err != nil {
			return a, fmt.Errorf("the form: %s: %w", field, err)
		}
		if len(decoded) > 0 {
			*to = string(decoded)
		}
	}
	return a, nil
}

// key shows what is left for a key. It is a POST so that the key is in no address.
func (p *Page) key(w http.ResponseWriter, r *http.Request) {
	if !p.form(w, r) {
		return
	}
	a, err := lookupOf(r)
	if err != nil {
		p.fail(w, r, http.StatusBadRequest, err)
		return
	}
	maySee := p.only(r)
	if a.Listed == "" {
		a.Listed = p.named(a.Query, maySee)
	}
	found, err := p.find(a)
	found = slices.DeleteFunc(slices.Clone(found), func(s Subject) bool {
		name := s.Limit.Limit().Name
		return !maySee(name) || !strings.Contains(name, a.Narrow)
	})
	if err != nil {
		p.fail(w, r, http.StatusBadRequest, err)
		return
	}
	if len(found) > maxFound {
		p.narrow(w, r, a, found)
		return
	}
	page := keyPage{Shown: text(a.Query), lookup: a, CanWrite: p.mayWrite(r),
		RefusedAs: text(p.refusedAs(found))}
	if a.Listed != "" {
		_, page.Shown, _ = strings.Cut(a.Listed, " ")
		page.Shown, page.RefusedAs = text(page.Shown), ""
	} else if page.Shown == a.Query {
		page.Typed = a.Query
	}
	algorithms := p.algorithms()
	for _, s := range found {
		v := p.viewOf(r.Context(), s)
		limit := s.Limit.Limit()
		if a := algorithms[limit.Name]; a != nil && a.Limit() == limit {
			v.Besides = p.besides(limit.Name)
		}
		page.Limits = append(page.Limits, v)
		page.CanRelease = page.CanRelease || v.Holds
	}
	slices.SortStableFunc(page.Limits, func(a, b *keyView) int {
		rank := func(v *keyView) int64 {
			switch {
			case v.Refuses() && !v.Trial:
				return 3000
			case v.Err != nil:
				return 2000
			case v.Block || v.Of == 0:
				return 0
			}
			return 1000 * v.Used() / v.Of
		}
		return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(b.Wait, a.Wait))
	})
	for _, v := range page.Limits {
		if v.Plot() != nil {
			page.Plots = append(page.Plots, v)
		}
	}
	page.say()
	if page.Failed && p.limited(r) == nil {
		for _, l := range p.state() {
			if l.Bad {
				page.Problems = append(page.Problems, prose(said(l)))
			}
		}
	}
	p.write(w, r, http.StatusOK, "key", page)
}

// say sets what the page says first.
func (page *keyPage) say() {
	var failed []*keyView
	room := false
	for _, v := range page.Limits {
		switch {
		case v.Err != nil:
			failed = append(failed, v)
		case v.Refuses() && !v.Trial:
			page.Says = append(page.Says, v.Says())
			page.Refused = true
		default:
			room = true
		}
	}
	page.Failed = len(failed) > 0
	switch {
	case len(page.Limits) == 0:
		page.Says = []string{"No limit applies to it."}
	case len(failed) == 1:
		page.Says = append(page.Says, failed[0].Says())
	case page.Failed: // mostly for one cause
		page.Says = append(page.Says, fmt.Sprintf("%d of %d limits cannot be looked up: %s",
			len(failed), len(page.Limits), failed[0].Err.Says))
	case !page.Refused:
		page.Says = []string{"No limit refuses this key."}
	case room:
		page.Says = append(page.Says, "No other limit refuses it.")
	}
}

// find returns what a form asks for.
func (p *Page) find(a lookup) ([]Subject, error) {
	switch {
	case p.opts.Store == nil:
		return nil, errors.New("the page has no store to look the key up in")
	case a.Listed != "":
		return p.listed(a.Listed)
	case a.Query == "":
		return nil, errors.New("type a key")
	}
	return p.opts.Find(a.Query)
}

// hash is the beginning of a name in the list of keys that are refused most, as the page shows it.
var hash = regexp.MustCompile(`^[0-9a-f]{8,}…?$`)

// named returns the key of that list whose hash a viewer has typed, as [lookup.Listed], or "".
func (p *Page) named(typed string, maySee func(string) bool) string {
	if p.opts.Top == nil || p.plain() || !hash.MatchString(typed) {
		return ""
	}
	for _, l := range p.refused.list(time.Now()) {
		for _, k := range l.Keys {
			if maySee(k.limit) && strings.HasPrefix(k.name, strings.TrimSuffix(typed, "…")) {
				return k.limit + " " + k.name
			}
		}
	}
	return ""
}

// listed returns a key of the list of those that are refused most, by the limit and its name.
func (p *Page) listed(text string) ([]Subject, error) {
	limit, name, _ := strings.Cut(text, " ")
	if p.opts.Top == nil {
		return nil, errors.New("the page has no list of keys that are refused most")
	}
	key, ok := p.opts.Top.Key(limit, name)
	if !ok {
		return nil, errors.New("the key is not among the most refused ones any more, or is too " +
			"long to be kept")
	}
	// Find knows the rate of a key better, if it takes the key as one.
	found, err := p.opts.Find(key)
	if err != nil {
		found = nil
	}
	found = slices.DeleteFunc(slices.Clone(found), func(s Subject) bool { return s.Key != key })
	of := func(s Subject) bool { return s.Limit.Limit().Name == limit }
	switch i := slices.IndexFunc(found, of); {
	case i >= 0 && len(found) > maxFound:
		return found[i : i+1], nil
	case i >= 0:
		return found, nil
	}
	for _, a := range p.opts.Limits() {
		if a.Limit().Name == limit {
			return []Subject{{a, key}}, nil
		}
	}
	return nil, errors.New("the limit is not in force any more")
}

// narrow lists limits of which too many have a key.
func (p *Page) narrow(w http.ResponseWriter, r *http.Request, a lookup, found []Subject) {
	var names []string
	for _, s := range found {
		names = append(names, s.Limit.Limit().Name)
	}
	slices.Sort(names)
	p.write(w, r, http.StatusOK, "narrow", struct {
		lookup
		Shown string
		Most  int
		Names []string
	}{a, text(a.Query), maxFound, slices.Compact(names)})
}

// refusedAs returns the name of the key of all subjects, or "" if they have several.
func (p *Page) refusedAs(found []Subject) string {
	if len(found) == 0 || slices.ContainsFunc(found, func(s Subject) bool {
		return s.Key != found[0].Key
	}) {
		return ""
	}
	return p.nameOf(found[0].Key)
}
