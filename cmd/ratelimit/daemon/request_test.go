package daemon

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// FuzzReadDemand: what is accepted is what another JSON parser reads, and the answer to what is
// not accepted repeats nothing of it.
func FuzzReadDemand(f *testing.F) {
	for _, body := range []string{
		`{"key":"user:42","n":1}`, ` {"n":2,"key":"k"} `, `{"key":"k"}`, `{"key":"\ud800"}`,
		`{"key":"k","key":"l"}`, `{"key":null}`, `{"key":"k","n":1.5}`,
		`{"key":"k","n":9223372036854775808}`, `{"KEY":"k"}`, `{"key":"k"}{}`, `[]`,
		`{"key":{"a":[]},"n":"1"}`, `{"":0}`, "{\"key\":\"\xff\"}", `{`, ``,
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	rule := integerRule("n", 1, driver.MaxUnits)
	answers := []string{badKey.Detail, notJSON.Detail, trailer.Detail, rule,
		`"key" is given twice.`, `"n" is given twice.`}
	for _, form := range []fields{{"key": nil}, {"key": nil, "n": nil}} {
		answers = append(answers, form.wrong().Detail, form.unknown().Detail)
	}
	f.Fuzz(func(t *testing.T, body []byte, withN bool) {
		var key *string
		var n *int64
		form := fields{}
		if withN {
			form["n"] = integer(&n, "n", 1, driver.MaxUnits)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/take", bytes.NewReader(body))
		if !readDemand(w, r, form, &key) {
			if w.Code != http.StatusBadRequest || !slices.Contains(answers, detail(t, w)) {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			return
		}
		var want struct {
			Key string `json:"key"`
			N   *int64 `json:"n"`
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%s is accepted: %v", body, err)
		}
		if *key != want.Key || !same(n, want.N) || *key == "" || !utf8.ValidString(*key) {
			t.Fatalf("%s is %q and %v, want %+v", body, *key, n, want)
		}
	})
}

// detail returns the detail of problem details.
func detail(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var p problem.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	return p.Detail
}
