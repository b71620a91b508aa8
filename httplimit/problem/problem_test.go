package problem_test

import (
	"encoding/json"
	"math"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/httplimit/problem"
)

func TestWrite(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    problem.Problem
		body string
	}{
		{"status only", problem.Problem{Status: 503},
			`{"title":"Service Unavailable","status":503}`},
		{
			"everything",
			problem.Problem{Type: problem.QuotaExceeded, Title: "Quota Exceeded",
				Status: 429, Detail: "d", ViolatedPolicies: []string{"burst"}},
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
				`"title":"Quota Exceeded","status":429,"detail":"d","violated-policies":["burst"]}`,
		},
		{"no text", problem.Problem{Status: 499}, `{"status":499}`},
		{"escaped", problem.Problem{Title: `a"\<é`, Status: 429,
			ViolatedPolicies: []string{"a\n", "b", "\xff"}},
			`{"title":"a\"\\\u003cé","status":429,"violated-policies":["a\n","b","\ufffd"]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			rec.Header().Set("Content-Encoding", "gzip")
			rec.Header().Set("Content-Length", "1000000")
			tt.p.Write(rec)
			if rec.Code != tt.p.Status || rec.Body.String() != tt.body+"\n" {
				t.Errorf("got %d %s\nwant %d %s", rec.Code, rec.Body, tt.p.Status, tt.body)
			}
			res := rec.Result()
			if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type %q", got)
			}
			if got := res.Header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control %q", got)
			}
			if got := res.Header.Get("Content-Encoding"); got != "" {
				t.Errorf("Content-Encoding %q was left", got)
			}
			if res.ContentLength != int64(len(tt.body)+1) {
				t.Errorf("Content-Length %d, want %d", res.ContentLength, len(tt.body)+1)
			}
		})
	}
}

// TestWriteEscapes: each byte is written as encoding/json writes it.
func TestWriteEscapes(t *testing.T) {
	for c := range 256 {
		p := problem.Problem{Title: "a" + string([]byte{byte(c)}) + "b", Status: 429}
		want, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		p.Write(rec)
		if got := rec.Body.String(); got != string(want)+"\n" {
			t.Errorf("byte %#x: got %swant %s", c, got, want)
		}
	}
}

func TestSetRetryAfter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                               "1",
		time.Microsecond:                "1",
		time.Second:                     "1",
		time.Second + 1:                 "2",
		90 * time.Second:                "90",
		366*24*time.Hour - 1:            "31622400",
		366 * 24 * time.Hour:            "31622400",
		2*time.Second - time.Nanosecond: "2",
		math.MaxInt64:                   "9223372037",
	} {
		rec := httptest.NewRecorder()
		problem.SetRetryAfter(rec.Header(), d)
		if got := rec.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
