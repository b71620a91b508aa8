package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/topkeys"
)

// topList returns the answer to a request for the most refused keys.
func topList(t *testing.T, h http.Handler) (list topAnswer) {
	t.Helper()
	status, header, body := call(t, h, request(http.MethodGet, "/v1/top-keys", ""))
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK ||
		header.Get("Content-Type") != "application/json" ||
		header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v %v: %s", status, header, err, body)
	}
	return list
}

// TestTopKeys: refusals of all requests count under the limits that refuse, and decay.
func TestTopKeys(t *testing.T) {
	s := newScene(t)
	now := time.Now()
	top, err := NewTopKeys(2, true, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	s.api = flagsAPI(t, testFlags(), s.store, decision.WithObserver(top.Observe),
		decision.WithObserver(func(context.Context, ratelimit.Observation) { counted++ }))
	s.api.top = top

	empty := topAnswer{topkeys.DefaultHalfLife.Milliseconds(), []topLimit{}}
	if got := topList(t, s.api); !reflect.DeepEqual(got, empty) {
		t.Errorf("%+v, want %+v", got, empty)
	}
	for range 5 {
		s.post("/v1/decide", `{"key":"a"}`)
	}
	s.post("/v1/peek", `{"key":"a"}`)
	s.post("/v1/decide", `{"claims":[{"limit":"requests","key":"a"},`+
		`{"limit":"tokens","key":"b"}]}`)
	for range 3 {
		s.post("/v1/decide", `{"hold_ms":0,"claims":[{"limit":"calls","key":"b"}]}`)
	}
	s.post("/v1/block", `{"limit":"blocked","key":"c","for_ms":1000}`)
	s.post("/v1/decide", `{"claims":[{"limit":"blocked","key":"c"}]}`)
	want := topAnswer{empty.HalfLifeMS, []topLimit{
		{"blocked", 1, []topKey{{Key: "c", Count: 1}}},
		{"calls", 1, []topKey{{Key: "b", Count: 1}}},
		{"requests", 4, []topKey{{Key: "a", Count: 4}}},
	}}
	if got := topList(t, s.api); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if counted == 0 {
		t.Error("the other observer is not called")
	}

	now = now.Add(2 * topkeys.DefaultHalfLife)
	for _, key := range []string{"d", "e"} {
		s.post("/v1/block", `{"limit":"blocked","key":"`+key+`","for_ms":1000}`)
		s.post("/v1/decide", `{"claims":[{"limit":"blocked","key":"`+key+`"}]}`)
	}
	want.Limits = []topLimit{
		{"blocked", 2.25, []topKey{{Key: "e", Count: 1.25, Error: .25}, {Key: "d", Count: 1}}},
		{"calls", .25, []topKey{{Key: "b", Count: .25}}},
		{"requests", 1, []topKey{{Key: "a", Count: 1}}},
	}
	if got := topList(t, s.api); !reflect.DeepEqual(got, want) {
		t.Errorf("later %+v, want %+v", got, want)
	}
}
