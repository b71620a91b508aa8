package envoy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

func post(h http.Handler, method, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "/json", strings.NewReader(body)))
	return w
}

func TestJSON(t *testing.T) {
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h := newService(t, store, Config{}, new(strings.Builder)).JSON()
	const plan = `{"domain":"shop","descriptors":[{"entries":[{"key":"plan","value":"a"}]}]}`
	for _, c := range []struct {
		body string
		code int
	}{
		{plan, 200},
		{strings.Replace(plan, "{", `{"hits_addend":2,`, 1), 429},
		{strings.Replace(plan, "{", `{"hitsAddend":1,`, 1), 200},
		{plan, 429},
		{`{"domain":"shop","descriptors":[{"entries":[{"key":"user"}]}]}`, 200},
		{`{"domain":"shop"}`, 400},
		{`{}`, 400},
		{``, 400},
		{`[]`, 400},
		{strings.Replace(plan, "{", `{"unknown":1,`, 1), 400},
		{plan + plan, 400},
		{plan + strings.Repeat(" ", maxMessage), 400},
	} {
		w := post(h, http.MethodPost, c.body)
		if w.Code != c.code {
			t.Errorf("%.100s: %d, want %d", c.body, w.Code, c.code)
			continue
		}
		if c.code == 400 {
			if got := w.Body.String(); got != "Bad Request\n" {
				t.Errorf("%.100s: the body is %q", c.body, got)
			}
			continue
		}
		var resp rls.RateLimitResponse
		if err := protojson.Unmarshal(w.Body.Bytes(), &resp); err != nil {
			t.Errorf("%s: %v", c.body, err)
		}
		if w.Header().Get("Content-Type") != "application/json" || len(resp.GetStatuses()) != 1 ||
			(resp.GetOverallCode() == over) != (c.code == 429) {
			t.Errorf("%s: %v %v", c.body, w.Header(), &resp)
		}
	}
	if w := post(h, http.MethodGet, plan); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d %v", w.Code, w.Header())
	}
}

func TestJSONUndecided(t *testing.T) {
	h := newService(t, down{driver.ErrUnavailable}, Config{}, new(strings.Builder)).JSON()
	w := post(h, http.MethodPost,
		`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"secret"}]}]}`)
	if w.Code != 500 || w.Body.String() != "Internal Server Error\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestJSONNotUTF8: JSON is UTF-8, so two values that are not can never become one.
func TestJSONNotUTF8(t *testing.T) {
	s := newService(t, down{driver.ErrUnavailable}, Config{}, new(strings.Builder))
	for _, value := range append(notUTF8[:8:8], `\ud800`, `\udc00a`) {
		w := post(s.JSON(), http.MethodPost, `{"domain":"shop","descriptors":[{"entries":[`+
			`{"key":"user","value":"`+value+`"}]}]}`)
		if w.Code != 400 {
			t.Errorf("%q: %d %s", value, w.Code, w.Body)
		}
	}
	if got := s.Stats(); got.Invalid != 10 || got.Calls != 10 {
		t.Errorf("%+v", got)
	}
}
