package httpapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit"
)

const descriptorLimits = `
limits:
  - {name: tokens, key: [tenant], max: 100/1m, holds: 1m}
  - {name: users, key: [user], max: 2/1m}
  - {name: calls, key: [call], max: 2, algorithm: in-flight, holds: 10m}
  - {name: keys, key: [key], max: 3/1m}
  - {name: none, key: [suspended], max: 0}
  - {name: any, key: [key, path], max: unlimited}
`

func TestDescriptors(t *testing.T) {
	s := fileScene(t, descriptorLimits)
	both := `{"descriptors":[{"entries":{"tenant":"acme"},"n":60},{"entries":{"user":"bob"}}]}`
	for i, tt := range []struct {
		body      string
		status    int
		name      string // of the limit that binds
		remaining int
	}{
		{`{"descriptor":{"tenant":"acme"},"n":30}`, 200, "tokens", 70},
		{both, 200, "users", 1},
		{both, 429, "tokens", 10},
		{`{"descriptor":{"user":"bob"}}`, 200, "users", 0}, // which the refusal has not charged
		{`{"descriptor":{"suspended":"yes","tenant":"acme"}}`, 429, "none", 0},
		{`{"descriptor":{"tenant":"acme"},"n":101}`, 429, "tokens", 0},
		{`{"key":"user:42","n":2}`, 200, "keys", 1},
		{`{"descriptor":{"key":"user:42"},"n":0}`, 200, "keys", 1},
		{`{"descriptor":{"key":"user:42","path":"/"},"n":2}`, 429, "keys", 1},
		{`{"claims":[{"limit":"tokens","key":"acme","n":10}]}`, 200, "tokens", 0},
	} {
		peeked, header, peek := s.post("/v1/peek", tt.body)
		if peeked != 200 || header.Get("Retry-After") != "" ||
			peek["allowed"] != (tt.status == 200) || peek["name"] == nil {
			t.Errorf("peek %d: %d %v, want what %+v says", i, peeked, peek, tt)
		}
		status, header, answer := s.post("/v1/decide", tt.body)
		left, _ := answer["remaining"].(float64)
		if status != tt.status || answer["name"] != tt.name || int(left) != tt.remaining ||
			answer["allowed"] != (status == 200) {
			t.Errorf("request %d: %d %v, want %+v", i, status, answer, tt)
		}
		never, _ := answer["never"].(bool)
		if retry := header.Get("Retry-After"); (retry != "") != (status == 429 && !never) {
			t.Errorf("request %d: Retry-After is %q, never %t", i, retry, never)
		}
	}
	_, _, answer := s.post("/v1/decide", `{"descriptor":{"color":"red"}}`)
	if limits, ok := answer["limits"].([]any); !ok || len(limits) > 0 || len(answer) != 2 {
		t.Errorf("no limit: %v", answer)
	}
}

// TestUnaskedLimits: what is left under limits that were not asked is not shown, except that of an
// unlimited one.
func TestUnaskedLimits(t *testing.T) {
	s := fileScene(t, `
limits:
  - {name: minute, key: [tenant], max: 100/1m}
  - {name: month, key: [tenant], max: 100000, algorithm: month}
  - {name: blocked, key: [tenant], max: 24h, algorithm: block}
  - {name: free, key: [tenant], max: unlimited}
`)
	for n, source := range map[int]string{101: "none", 100: "store"} {
		_, _, answer := s.post("/v1/decide",
			fmt.Sprintf(`{"descriptor":{"tenant":"acme"},"n":%d}`, n))
		limits := append(answer["limits"].([]any), answer)
		for _, l := range limits {
			state := l.(map[string]any)
			_, left := state["remaining"]
			_, retry := state["retry_after_ms"]
			_, reset := state["reset_after_ms"]
			unlimited := state["name"] == "free"
			known := n == 100 || unlimited
			if left != known || retry != known || reset != known ||
				state["source"] != source && !unlimited {
				t.Errorf("%d units: %v, want the source %s", n, state, source)
			}
		}
	}
}

// TestDescriptorOfFlags: a limit of --limit is one with the key [key].
func TestDescriptorOfFlags(t *testing.T) {
	s := newScene(t)
	s.play(
		step{path: "/v1/decide", body: `{"descriptor":{"key":"secret-key"},"n":2}`, status: 200,
			left: "requests=1 tokens=98"},
		step{path: "/v1/decide", body: `{"key":"secret-key","n":2}`, status: 429},
	)
}

func TestDescriptorHolds(t *testing.T) {
	s := fileScene(t, descriptorLimits)
	s.play(
		step{path: "/v1/decide", status: 200,
			body: `{"descriptors":[{"entries":{"tenant":"secret-key","call":"a"},"n":2},` +
				`{"entries":{"call":"a"}}],"hold_ms":0}`,
			left: "tokens=98"},
		step{path: "/v1/decide", body: `{"descriptor":{"call":"a"}}`, status: 422,
			typ: "wrong-kind"},
		step{path: "/v1/decide", body: `{"descriptor":{"call":"a"},"hold_ms":0}`, status: 429},
		step{path: "/v1/settle", body: id(1, `"used":[{"limit":"tokens","n":30}]`), status: 204,
			left: "tokens=70"},
		step{path: "/v1/decide", body: `{"descriptor":{"call":"a"},"hold_ms":0}`, status: 200},
		step{path: "/v1/decide", body: `{"descriptor":{"call":"a"},"hold_ms":1}`, status: 422,
			typ: "ErrInvalid"},
		step{path: "/v1/decide", body: `{"descriptor":{"call":"a"},"wait_ms":1}`, status: 400,
			typ: "invalid-request"},
		step{path: "/v1/reset", body: `{"limit":"tokens","key":"secret-key"}`, status: 204,
			left: "tokens=100"},
	)
}

// TestSettleUnderOtherRate: what was used is charged in full, whatever rate of a bucket it was held
// under: an id does not say it.
func TestSettleUnderOtherRate(t *testing.T) {
	s := fileScene(t, "limits:\n  - {name: tokens, key: [tenant], max: 100/1d, "+
		"algorithm: bucket, holds: 1m, by: {entry: plan, pro: 1000/1d}}\n")
	const pro = `{"descriptor":{"tenant":"secret-key","plan":"pro"},"n":%d%s}`
	for range 5 {
		s.play(step{path: "/v1/decide", body: fmt.Sprintf(pro, 200, `,"hold_ms":0`), status: 200})
	}
	for i := range 5 {
		s.play(step{path: "/v1/settle", body: id(i+1, `"used":200`), status: 204})
	}
	s.play(step{path: "/v1/decide", body: fmt.Sprintf(pro, 1, ""), status: 429},
		step{path: "/v1/decide", body: `{"descriptor":{"tenant":"secret-key"}}`, status: 429},
		step{path: "/v1/decide", body: fmt.Sprintf(pro, 1, ""), status: 429})
}

// TestDescriptorHoldsTooMany: an id that the daemon would not accept again holds nothing.
func TestDescriptorHoldsTooMany(t *testing.T) {
	s := fileScene(t, "limits:\n"+
		"  - {name: a, key: [tenant], max: 5/1m, holds: 1m}\n"+
		"  - {name: b, key: [tenant], max: 5/1m, holds: 1m}\n")
	var list []string
	for i := range 9 {
		list = append(list, fmt.Sprintf(`{"entries":{"tenant":"%d"}}`, i))
	}
	body := `{"hold_ms":0,"descriptors":[` + strings.Join(list, ",") + `]}`
	if status, _, answer := s.post("/v1/decide", body); status != http.StatusBadRequest {
		t.Errorf("%d %v", status, answer)
	}
	if res := left(t, s.api, "a", "1"); res.Remaining != 5 {
		t.Errorf("%+v, want 5 free units", res)
	}
}

func TestBadDescriptors(t *testing.T) {
	h := fileAPI(t, descriptorLimits, untouched{t})
	many := strings.Repeat(`{"entries":{"a":"b"}},`, maxDescriptors)
	var entries []string
	for i := range maxEntries + 1 {
		entries = append(entries, fmt.Sprintf(`"e%d":""`, i))
	}
	for _, body := range []string{
		`{}`,
		`{"descriptor":"tenant"}`,
		`{"descriptor":null}`,
		`{"descriptor":{"tenant":1}}`,
		`{"descriptor":{"tenant":null}}`,
		`{"descriptor":{"tenant":{"a":"b"}}}`,
		`{"descriptor":{"tenant":"a","tenant":"b"}}`,
		`{"descriptor":{"":"a"}}`,
		"{\"descriptor\":{\"tenant\":\"a\xff\"}}",
		`{"descriptor":{"tenant":"a"}`,
		`{"descriptor":{"tenant"`,
		`{"descriptor":{` + strings.Join(entries, ",") + `}}`,
		`{"descriptor":{"tenant":"a"},"n":-1}`,
		`{"descriptor":{"tenant":"a"},"n":1.5}`,
		`{"descriptor":{"tenant":"a"},"key":"b"}`,
		`{"descriptor":{"tenant":"a"},"claims":[{"limit":"tokens","key":"a"}]}`,
		`{"descriptor":{"tenant":"a"},"descriptors":[{"entries":{"a":"b"}}]}`,
		`{"descriptors":[]}`,
		`{"descriptors":[{"n":1}]}`,
		`{"descriptors":[{"entries":{"a":"b"},"n":1,"key":"c"}]}`,
		`{"descriptors":[{"entries":{"a":"b"}}],"n":2}`,
		`{"descriptors":[` + many + `{"entries":{"a":"b"}}]}`,
		`{"key":""}`,
	} {
		for _, path := range []string{"/v1/decide", "/v1/peek"} {
			status, _, answer := call(t, h, request(http.MethodPost, path, body))
			if status != http.StatusBadRequest || !strings.Contains(answer, "invalid-request") {
				t.Errorf("%s %s: %d %s", path, body, status, answer)
			}
		}
	}
}

// TestFileWithoutKeys: a file without a limit for the entry key has none for a key alone. Decide
// reads a key as a descriptor.
func TestFileWithoutKeys(t *testing.T) {
	s := fileScene(t, "limits: [{name: tokens, key: [tenant], max: 100/1m}]")
	if status, _, answer := s.post("/v1/reset", `{"key":"a"}`); status != 422 {
		t.Errorf("reset: %d %v", status, answer)
	}
	for _, path := range []string{"/v1/decide", "/v1/peek"} {
		if status, _, answer := s.post(path, `{"key":"a"}`); status != 200 ||
			answer["allowed"] != true {
			t.Errorf("%s of a descriptor that no limit matches: %d %v", path, status, answer)
		}
	}
}

func TestDescriptorUndecided(t *testing.T) {
	h := fileAPI(t, descriptorLimits, &faltering{errs: []error{ratelimit.ErrUnavailable}})
	status, _, body := call(t, h, request(http.MethodPost, "/v1/decide",
		`{"descriptor":{"tenant":"secret-key"}}`))
	if status != http.StatusServiceUnavailable || strings.Contains(body, secret) {
		t.Errorf("%d %s", status, body)
	}
}

// TestUndecidedDescriptors: the log names the limits of descriptors that the store did not decide.
func TestUndecidedDescriptors(t *testing.T) {
	for path, limits := range map[string]string{
		"/v1/decide": `"limits":["tokens","users"]`, "/v1/check": `"limits":["clients"]`,
	} {
		h := fileAPI(t, descriptorLimits+"  - {name: clients, key: [client], max: 1/1m}\n",
			&faltering{errs: []error{ratelimit.ErrUnavailable}})
		var log bytes.Buffer
		h.log = slog.New(slog.NewJSONHandler(&log, nil))
		status, _, answer := call(t, h, request(http.MethodPost, path,
			`{"descriptor":{"tenant":"secret-key","user":"bob"}}`))
		if status != http.StatusServiceUnavailable || !strings.Contains(log.String(), limits) ||
			strings.Contains(log.String(), secret) {
			t.Errorf("%s: %d %s, want %s in the log\n%s", path, status, answer, limits, &log)
		}
	}
}
