package dashboard

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes":  func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"length": length, "number": number, "percent": percent,
	"cut": func(name string) string { return name[:min(len(name), 8)] },
}).ParseFS(assets, "assets/*.html"))

// routes sets what the page answers. All its links are relative, so it works under any prefix.
func (p *Page) routes() {
	p.mux = http.NewServeMux()
	p.mux.HandleFunc("GET /{$}", p.index)
	p.mux.HandleFunc("GET /limit", p.limit)
	p.mux.HandleFunc("GET /chart", p.drawing)
	p.mux.HandleFunc("GET /events", p.events)
	p.mux.HandleFunc("GET /numbers", p.numbers)
	p.mux.HandleFunc("GET /snapshot", p.latest)
	p.mux.HandleFunc("POST /key", p.key)
	p.mux.HandleFunc("POST /act", p.act)
	p.mux.Handle("GET /page.css", asset("page.css", "text/css; charset=utf-8"))
	p.mux.Handle("GET /page.js", asset("page.js", "text/javascript; charset=utf-8"))
	p.mux.Handle("GET /icon.svg", asset("icon.svg", "image/svg+xml"))
	p.mux.Handle("GET /robots.txt", asset("robots.txt", "text/plain; charset=utf-8"))
}

// ServeHTTP serves the page under any prefix: the last element of the path says what is asked for.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "+
		"img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "+
		"frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // without it, forms have the origin null
	h.Set("Cache-Control", "no-store")
	own := *r
	own.URL = &url.URL{Path: "/" + r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:],
		RawQuery: r.URL.RawQuery}
	p.mux.ServeHTTP(w, &own)
}

// asset serves a file of assets, which a browser asks for again with its ETag.
func asset(name, contentType string) http.Handler {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(content)
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", etag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// A frame is what all pages have beside their data.
type frame struct {
	Token  string
	Choice choice
	Data   any
}

// write writes one of the pages.
func (p *Page) write(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	var page bytes.Buffer
	err := pages.ExecuteTemplate(&page, name, frame{p.token, choiceOf(r.URL), data})
	if err != nil { // of a template, before anything is written
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

// fail says what was not done and why: the first part of a chain of errors, and all of it below.
func (p *Page) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	p.write(w, r, status, "error", failureOf(err))
}

// A failure is an error as a sentence, and the whole of it if that is more.
type failure struct{ Says, Details string }

func failureOf(err error) *failure {
	all := text(strings.TrimPrefix(err.Error(), "ratelimit: "))
	says, rest, _ := strings.Cut(all, ": ")
	if errors.Is(err, ratelimit.ErrUnavailable) {
		says = "the store is unavailable"
	}
	if rest == "" || len(says) > 200 {
		return &failure{Says: all}
	}
	return &failure{says, all}
}

// only returns which limits the sender of r may see.
func (p *Page) only(r *http.Request) func(limit string) bool {
	if maySee := p.limited(r); maySee != nil {
		return maySee
	}
	return func(string) bool { return true }
}

// limited is only, and nil for all limits.
func (p *Page) limited(r *http.Request) func(limit string) bool {
	if p.opts.Only == nil {
		return nil
	}
	return p.opts.Only(r)
}

// An indexView is the first page.
type indexView struct {
	Now     overview
	List    list
	Top     topView
	Since   template.HTML
	CanLook bool
}

// A topView are keys that are refused most.
type topView struct {
	Keys  []shownKey
	Named bool // they have hashes
	Of    string
	Title string
}

type shownKey struct {
	Limit, Name, Raw string
	Refusals, For    string
}

// index shows the first page, or a part of it: how things are now, or the list.
func (p *Page) index(w http.ResponseWriter, r *http.Request) {
	c, maySee := choiceOf(r.URL), p.limited(r)
	var v indexView
	if part := r.URL.Query().Get("part"); part == "list" {
		v.List = p.list(c, maySee)
		p.write(w, r, http.StatusOK, "part-list", v)
		return
	} else if part == "now" {
		v.Now, v.Top = p.overview(c, maySee), p.top(maySee, "")
		p.write(w, r, http.StatusOK, "part-now", v)
		return
	}
	v = indexView{Now: p.overview(c, maySee), List: p.list(c, maySee), Top: p.top(maySee, ""),
		CanLook: p.opts.Store != nil}
	if at, ok := p.history.since(); ok {
		v.Since = clock(at, false)
	}
	p.write(w, r, http.StatusOK, "index", v)
}

// mostTop is how many keys the first page shows.
const mostTop = 10

// top returns the keys that a limit refuses most, or if it is "" all limits but trials.
func (p *Page) top(maySee func(string) bool, limit string) topView {
	var keys []topKey
	for _, l := range p.refused.list(time.Now()) {
		if (l.Limit == limit || limit == "" && !p.isTrial(l.Limit)) &&
			(maySee == nil || maySee(l.Limit)) {
			keys = append(keys, l.Keys...)
		}
	}
	slices.SortStableFunc(keys, func(a, b topKey) int { return cmp.Compare(b.Count, a.Count) })
	v := topView{Of: limit, Title: "Most refused keys"}
	if p.isTrial(limit) {
		v.Title = "Keys that it would refuse most"
	}
	for _, k := range keys[:min(len(keys), mostTop)] {
		v.Named = v.Named || !p.plain()
		v.Keys = append(v.Keys, shownKey{text(k.limit), k.Name, k.limit + " " + k.name,
			number(k.Count), length(time.Duration(k.For) * time.Second)})
	}
	return v
}

func (p *Page) isTrial(limit string) bool {
	s := (*p.history.limits.Load())[limit]
	return s != nil && s.trial
}

// plain reports whether the list has keys, and no hashes.
func (p *Page) plain() bool { return p.opts.Top.Name("-") == "-" }

func (p *Page) latest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(p.snapshot(time.Now()).only(p.limited(r))))
}

// numbers serves what a viewer gets each second, for one who gets no events.
func (p *Page) numbers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(tick{time.Now().UnixMilli(),
		p.rows(choiceOf(r.URL), p.limited(r), false)}))
}

// asked returns the limit that a request names.
func (p *Page) asked(w http.ResponseWriter, r *http.Request) (s *series, ok bool) {
	name := r.URL.Query().Get("name")
	s = (*p.history.limits.Load())[name]
	if s == nil || !p.only(r)(name) {
		p.fail(w, r, http.StatusNotFound, errNoLimit)
		return nil, false
	}
	return s, true
}

// A limitPage is the page of a limit.
type limitPage struct {
	Row   row
	Plot  *plot
	Lines []Line
	Top   topView
	Views []rangeView
}

// A rangeView has the decisions of a limit in a range.
type rangeView struct{ Text, Admitted, Refused, Share, Notes string }

// limit shows the history of a limit, and its rule.
func (p *Page) limit(w http.ResponseWriter, r *http.Request) {
	c := choiceOf(r.URL)
	s, ok := p.asked(w, r)
	if !ok {
		return
	}
	rows := p.rows(c, func(limit string) bool { return limit == s.name }, false)
	p.setWords(rows)
	rule := p.rule(s.name)
	line := 0.0
	if l := *s.limit.Load(); rule.Shared && !s.units.Load() && l.Window <= time.Minute {
		line = float64(l.Max) / l.Window.Seconds()
	}
	page := limitPage{Row: rows[0], Plot: p.history.plot(s, c, "Decisions a second", line),
		Top: p.top(nil, s.name)}
	if rule.Lines != nil {
		for _, l := range rule.Lines() {
			page.Lines = append(page.Lines, Line{Name: text(l.Name), Value: text(l.Value)})
		}
	}
	p.history.mu.Lock()
	for _, in := range ranges {
		n := in.inLocked(s)
		page.Views = append(page.Views, rangeView{in.Text, number(n[admitted]),
			number(n[refused]), percent(n[refused], n[admitted]+n[refused]), notes(n, 0)})
	}
	p.history.mu.Unlock()
	p.write(w, r, http.StatusOK, "limit", page)
}

var _ http.Handler = (*Page)(nil)
