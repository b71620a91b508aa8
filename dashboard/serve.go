package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"round": func(d time.Duration) string { return d.Round(time.Millisecond).String() },
}).ParseFS(assets, "assets/*.html"))

// routes sets what the page answers. All its links are relative, so it works under any prefix.
func (p *Page) routes() {
	p.mux = http.NewServeMux()
	p.mux.HandleFunc("GET /{$}", p.index)
	p.mux.HandleFunc("GET /limit", p.limit)
	p.mux.HandleFunc("GET /chart", p.drawing)
	p.mux.HandleFunc("GET /events", p.events)
	p.mux.HandleFunc("GET /snapshot", p.latest)
	p.mux.HandleFunc("POST /key", p.key)
	p.mux.HandleFunc("POST /act", p.act)
	p.mux.Handle("GET /page.css", asset("page.css", "text/css; charset=utf-8"))
	p.mux.Handle("GET /page.js", asset("page.js", "text/javascript; charset=utf-8"))
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

// write writes one of the pages.
func (p *Page) write(w http.ResponseWriter, status int, name string, data any) {
	var page bytes.Buffer
	err := pages.ExecuteTemplate(&page, name, struct {
		Token string
		Data  any
	}{p.token, data})
	if err != nil { // of a template, before anything is written
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

func (p *Page) fail(w http.ResponseWriter, status int, err error) {
	p.write(w, status, "error", text(err.Error()))
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

func (p *Page) index(w http.ResponseWriter, r *http.Request) {
	p.write(w, http.StatusOK, "index", struct {
		*snapshot
		CanLook bool
	}{p.snapshot(time.Now()).only(p.limited(r)), p.opts.Store != nil})
}

func (p *Page) latest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(p.snapshot(time.Now()).only(p.limited(r)).encode())
}

// limit shows the history of a limit.
func (p *Page) limit(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	s := (*p.history.limits.Load())[name]
	if s == nil || !p.only(r)(name) {
		p.fail(w, http.StatusNotFound, errNoLimit)
		return
	}
	p.history.noteBlocks(p.opts.Limits())
	p.write(w, http.StatusOK, "limit", struct {
		limitView
		Seconds int
		Highest int64
	}{p.history.view(s), columnSeconds, p.history.chart(s).highest})
}

// maxFound is under how many limits a key is looked up: each costs up to maxSteps+1 peeks.
const maxFound = 100

// key shows what is left for a key. It is a POST so that the key is in no address.
func (p *Page) key(w http.ResponseWriter, r *http.Request) {
	if !p.form(w, r) {
		return
	}
	q := r.PostForm.Get("q")
	var found []Subject
	err := errors.New("the page has no store to look the key up in")
	if p.opts.Store != nil {
		maySee := p.only(r)
		found, err = p.opts.Find(q)
		found = slices.DeleteFunc(slices.Clone(found), func(s Subject) bool {
			return !maySee(s.Limit.Limit().Name)
		})
	}
	switch {
	case err != nil:
	case q == "":
		err = errors.New("type a key")
	case len(found) > maxFound:
		err = fmt.Errorf("%d limits have such keys, more than %d", len(found), maxFound)
	}
	if err != nil {
		p.fail(w, http.StatusBadRequest, err)
		return
	}
	views := make([]keyView, 0, len(found))
	for _, s := range found {
		views = append(views, p.viewOf(r.Context(), s))
	}
	p.write(w, http.StatusOK, "key", struct {
		Query, Shown string
		Limits       []keyView
		CanWrite     bool
		CanRelease   bool
		RefusedAs    string
	}{q, text(q), views, p.mayWrite(r),
		slices.ContainsFunc(views, func(v keyView) bool { return v.Holds }),
		text(p.refusedAs(found))})
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

var _ http.Handler = (*Page)(nil)
