package httpapi

import (
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
)

// TestExplain: the limits that apply, with the reasons, and why others do not.
func TestExplain(t *testing.T) {
	s := fileScene(t, descriptorLimits)
	status, _, answer := s.post("/v1/explain", `{"descriptor":{"tenant":"acme"}}`)
	applies, _ := answer["applies"].([]any)
	others, _ := answer["others"].([]any)
	if status != 200 || len(applies) != 1 || len(others) != 5 {
		t.Fatalf("%d %v", status, answer)
	}
	first := applies[0].(map[string]any)
	if first["limit"] != "tokens" || first["key"] != "acme" || first["why"] != "max" {
		t.Errorf("%v", first)
	}
	if first["state"] == nil || first["key_hash"] != nil {
		t.Errorf("%v, want a state, and no hash outside of a service", first)
	}
	for _, body := range []string{`{}`, `{"descriptor":{"tenant":1}}`, `{"descriptor":{},"n":1}`} {
		if status, _, _ := s.post("/v1/explain", body); status != http.StatusBadRequest {
			t.Errorf("%s: %d", body, status)
		}
	}
}

// TestExplainState: what is left is shown also beside a limit that admits nothing, with the hash
// that the log has, and nothing is taken.
func TestExplainState(t *testing.T) {
	s := fileScene(t, descriptorLimits)
	s.api.audit.Trail = audit.New(discard,
		audit.Options{Hash: func(key string) string { return "hash of " + key }})
	s.post("/v1/decide", `{"descriptor":{"tenant":"acme"},"n":100}`)
	s.advance(10 * time.Second)
	for range 2 {
		_, _, answer := s.post("/v1/explain",
			`{"descriptor":{"tenant":"acme","suspended":"yes","user":"bob","call":"a"}}`)
		got := make(map[string]any)
		for _, a := range answer["applies"].([]any) {
			applied := a.(map[string]any)
			if applied["key_hash"] != "hash of "+applied["key"].(string) {
				t.Errorf("%v", applied)
			}
			got[applied["limit"].(string)] = applied["state"]
		}
		state := func(limit, remaining, retry float64) map[string]any {
			return map[string]any{"limit": limit, "remaining": remaining, "retry_after_ms": retry}
		}
		want := map[string]any{"tokens": state(100, 0, 50_000), "users": state(2, 2, 0),
			"calls": state(2, 2, 0), "none": nil}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	s.api = fileAPI(t, descriptorLimits, &faltering{errs: []error{ratelimit.ErrUnavailable}})
	status, _, answer := s.post("/v1/explain", `{"descriptor":{"tenant":"acme"}}`)
	if status != 200 || answer["applies"].([]any)[0].(map[string]any)["state"] != nil {
		t.Errorf("without a store: %d %v", status, answer)
	}
}
