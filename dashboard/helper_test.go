package dashboard_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/dashboard"
)

func newStore(t testing.TB) *memorystore.Store {
	t.Helper()
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func newLimiter(
	t testing.TB, store ratelimit.Store, algorithms ...ratelimit.Algorithm,
) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(store, algorithms...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newPage(t testing.TB, opts *dashboard.Options) *dashboard.Page {
	t.Helper()
	p, err := dashboard.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A browser visits a page.
type browser struct {
	testing.TB
	page http.Handler
}

func (b browser) do(r *http.Request) (status int, body string) {
	b.Helper()
	w := httptest.NewRecorder()
	b.page.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		b.Fatal(err)
	}
	return w.Code, string(text)
}

func (b browser) get(path string) string {
	b.Helper()
	status, body := b.do(httptest.NewRequest(http.MethodGet, path, nil))
	if status != http.StatusOK {
		b.Fatalf("%s: status %d: %s", path, status, body)
	}
	return body
}

func (b browser) post(path string, form url.Values) (status int, body string) {
	b.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

var tokenField = regexp.MustCompile(`name="token" value="([^"]+)"`)

// token returns that of the forms.
func (b browser) token() string {
	b.Helper()
	m := tokenField.FindStringSubmatch(b.get("/"))
	if m == nil {
		b.Fatal("there is no form")
	}
	return m[1]
}

// look returns the page of a key.
func (b browser) look(key string) string {
	b.Helper()
	status, body := b.post("/key", url.Values{"token": {b.token()}, "q": {key}})
	if status != http.StatusOK {
		b.Fatalf("status %d: %s", status, body)
	}
	return body
}

// action returns the form of an action on a key.
func (b browser) action(name, limit, key string) url.Values {
	raw := base64.RawURLEncoding.EncodeToString([]byte(key))
	return url.Values{"token": {b.token()}, "action": {name}, "limit": {limit}, "key": {raw},
		"query": {raw}, "confirmed": {"yes"}}
}

// numbers are what the page shows of a limit.
type numbers struct {
	Admitted, Refused, Undecided, Cached, Local, Open, Here, Stricter, Looser, Warned int64
}

type limitNumbers struct {
	Name, Rate              string
	Trial                   bool
	Second, Minute, Quarter numbers
}

// limits returns what /snapshot has of limits.
func (b browser) limits() map[string]limitNumbers {
	b.Helper()
	var s struct{ Limits []limitNumbers }
	if err := json.Unmarshal([]byte(b.get("/snapshot")), &s); err != nil {
		b.Fatal(err)
	}
	all := make(map[string]limitNumbers)
	for _, l := range s.Limits {
		all[l.Name] = l
	}
	return all
}
