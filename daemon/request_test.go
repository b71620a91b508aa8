package daemon

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/truewindow/ratelimit/internal/problem"
)

// FuzzParseDemand: what is accepted is what another JSON parser reads, and the answer to what is
// not accepted repeats nothing of it.
func FuzzParseDemand(f *testing.F) {
	for _, body := range []string{
		`{"key":"user:42","n":1}`, ` {"n":2,"key":"k"} `, `{"key":"k"}`, `{"key":"\ud800"}`,
		`{"key":"k","key":"l"}`, `{"key":null}`, `{"key":"k","n":1.5}`,
		`{"key":"k","n":9223372036854775808}`, `{"KEY":"k"}`, `{"key":"k"}{}`, `[]`,
		`{"key":{"a":[]},"n":"1"}`, `{"":0}`, "{\"key\":\"\xff\"}", `{`, ``,
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	answers := []*problem.Problem{badSyntax, badField, badN, badKey, resetField, twice, trailer}
	f.Fuzz(func(t *testing.T, body []byte, withN bool) {
		got, p := parseDemand(body, withN)
		if p != nil {
			if !slices.Contains(answers, p) {
				t.Fatalf("%+v", p)
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
		if want.N == nil {
			want.N = new(int64(1))
		}
		if got.key != want.Key || got.n != *want.N || got.n < 1 || got.key == "" ||
			!utf8.ValidString(got.key) {
			t.Fatalf("%s is %+v, want %+v of %d", body, got, want, *want.N)
		}
	})
}
