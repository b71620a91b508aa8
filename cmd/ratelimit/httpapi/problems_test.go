package httpapi

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/driver"
)

// checkTyped is checkProblem with what the problem's type ends with.
func checkTyped(
	t *testing.T, h http.Handler, r *http.Request, status int, typ string,
) http.Header {
	t.Helper()
	header, p := checkProblem(t, h, r, status)
	got, _ := p["type"].(string)
	if _, after, _ := strings.Cut(got, "#"); after != typ {
		t.Errorf("type %q, want %q: %v", got, typ, p)
	}
	return header
}

// goodBodies has valid requests for each path that has a body, with an id of tokens.
func goodBodies(id string) map[string][]string {
	return map[string][]string{
		"/v1/decide": {`{"key":"secret-key","n":1}`, of("tokens"), hold("tokens, calls"),
			of("calls", `"wait_ms":500`, `"hold_ms":60000`)},
		"/v1/peek":   {`{"key":"secret-key"}`, of("tokens, calls, blocked")},
		"/v1/settle": {`{"id":"` + id + `"}`, `{"id":"` + id + `","used":1}`},
		"/v1/renew":  {`{"id":"` + id + `","hold_ms":60000,"total":2}`},
		"/v1/force":  {one("tokens", `"n":1`)},
		"/v1/block":  {one("blocked", `"for_ms":1`)},
		"/v1/reset":  {`{"key":"secret-key"}`, one("blocked", "")},
	}
}

// TestForms: the form of each request is checked before the store is called.
func TestForms(t *testing.T) {
	h := flagsAPI(t, testFlags(), untouched{t})
	all := goodBodies("id")
	all["/v1/explain"] = []string{`{"domain":"","descriptor":{"key":"secret-key"}}`}
	if paths := len(rightOf) - 7; len(all) != paths { // without those of GET and of Envoy
		t.Fatalf("bodies for %d of %d paths", len(all), paths)
	}
	long := strings.Repeat("k", MaxBody)
	for path, bodies := range all {
		good := bodies[len(bodies)-1]
		for _, tt := range []struct {
			name, method, body string
			status             int
			typ                string
		}{
			{"GET", "GET", ``, 405, ""},
			{"PUT", "PUT", good, 405, ""},
			{"large", "POST", `{"key":"` + long + `"}`, 413, "invalid-request"},
			{"empty", "POST", ``, 400, "invalid-request"},
			{"no JSON", "POST", `secret-key`, 400, "invalid-request"},
			{"list", "POST", `[` + good + `]`, 400, "invalid-request"},
			{"null", "POST", `null`, 400, "invalid-request"},
			{"no field", "POST", `{}`, 400, "invalid-request"},
			{"cut off", "POST", good[:len(good)-1], 400, "invalid-request"},
			{"cut off in a value", "POST", good[:len(good)-2], 400, "invalid-request"},
			{"cut off in a name", "POST", good[:4], 400, "invalid-request"},
			{"wrong bracket", "POST", good[:len(good)-1] + `]`, 400, "invalid-request"},
			{"no comma", "POST", good[:len(good)-1] + ` "n":1}`, 400, "invalid-request"},
			{"trailing", "POST", good + `{}`, 400, "invalid-request"},
			{"unknown field", "POST", `{"secret-key":1,` + good[1:], 400, "invalid-request"},
			{"name in another case", "POST", `{"KEY":"k",` + good[1:], 400, "invalid-request"},
			{"field twice", "POST", good[:len(good)-1] + `,` + good[1:], 400, "invalid-request"},
			{"comma at the end", "POST", good[:len(good)-1] + `,}`, 400, "invalid-request"},
		} {
			t.Run(path+" "+tt.name, func(t *testing.T) {
				header := checkTyped(t, h, request(tt.method, path, tt.body), tt.status, tt.typ)
				if got := header.Get("Allow"); (got == "POST") != (tt.status == 405) {
					t.Errorf("Allow %q", got)
				}
			})
		}
	}
	for path, allow := range map[string]string{"/healthz": "GET, HEAD", "/v1/top-keys": "GET, HEAD",
		"/v1/decide/secret-key": "", "/v1/take": "", "/": ""} {
		status := http.StatusMethodNotAllowed
		if allow == "" {
			status = http.StatusNotFound
		}
		header, _ := checkProblem(t, h, request(http.MethodPost, path, `{"key":"k"}`), status)
		if got := header.Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q", path, got)
		}
	}
}

// TestValues: values that no store could decide are refused before the store is called.
func TestValues(t *testing.T) {
	h := flagsAPI(t, testFlags(), untouched{t})
	held := heldID(t, "tokens 5, requests 2, calls")
	claim := func(fields string) string { return `{"claims":[{` + fields + `}]}` }
	with := func(fields string) string { return `{"id":"` + held + `",` + fields + `}` }
	many := strings.Join(slices.Repeat([]string{"tokens"}, maxClaims+1), ", ")
	for _, tt := range []struct {
		name, path, body string
		status           int
		typ              string
	}{
		{"no claim", "/v1/decide", `{"claims":[]}`, 400, "invalid-request"},
		{"claims are an object", "/v1/decide", `{"claims":{}}`, 400, "invalid-request"},
		{"claims are null", "/v1/decide", `{"claims":null}`, 400, "invalid-request"},
		{"claims are not closed", "/v1/decide", `{"claims":[}`, 400, "invalid-request"},
		{"a claim is null", "/v1/decide", `{"claims":[null]}`, 400, "invalid-request"},
		{"a claim is a list", "/v1/decide", `{"claims":[[]]}`, 400, "invalid-request"},
		{"too many claims", "/v1/decide", of(many), 400, "invalid-request"},
		{"claims and a key", "/v1/decide", of("tokens", `"key":"k"`), 400, "invalid-request"},
		{"claims and n", "/v1/peek", of("tokens", `"n":1`), 400, "invalid-request"},
		{"n without a key", "/v1/decide", `{"n":1}`, 400, "invalid-request"},
		{"a limit without claims", "/v1/decide", one("tokens", ""), 400, "invalid-request"},
		{"no limit", "/v1/decide", claim(`"key":"secret-key"`), 400, "invalid-request"},
		{"limit is null", "/v1/decide", claim(`"key":"secret-key","limit":null`), 400,
			"invalid-request"},
		{"no key", "/v1/decide", claim(`"limit":"tokens"`), 400, "invalid-request"},
		{"empty key", "/v1/decide", claim(`"limit":"tokens","key":""`), 400, "invalid-request"},
		{"key is null", "/v1/decide", `{"key":null}`, 400, "invalid-request"},
		{"key is a number", "/v1/decide", `{"key":7}`, 400, "invalid-request"},
		{"key is an object", "/v1/reset", `{"key":{"a":"secret-key"}}`, 400, "invalid-request"},
		{"key is no UTF-8", "/v1/decide", "{\"key\":\"secret-key\xff\"}", 400, "invalid-request"},
		{"half a surrogate pair", "/v1/peek", `{"key":"secret-key\ud800"}`, 400, "invalid-request"},
		{"long key", "/v1/decide", `{"key":"` + strings.Repeat("k", maxKey+1) + `"}`, 400,
			"invalid-request"},
		{"unknown field of a claim", "/v1/decide", claim(`"limit":"tokens","key":"k","N":1`), 400,
			"invalid-request"},
		{"field of a claim twice", "/v1/decide", claim(`"limit":"tokens","key":"k","key":"l"`),
			400, "invalid-request"},
		{"n exceeds a limit", "/v1/peek", `{"key":"secret-key","n":4}`, 422, "ErrExceedsLimit"},
		{"n exceeds any limit", "/v1/decide",
			fmt.Sprintf(`{"key":"secret-key","n":%d}`, int64(math.MaxInt64)), 422,
			"ErrExceedsLimit"},
		{"n of a claim exceeds", "/v1/peek", of("requests, tokens 101"), 422, "ErrExceedsLimit"},
		{"n exceeds the calls", "/v1/decide", hold("calls 3"), 422, "ErrExceedsLimit"},
		{"n of a block", "/v1/decide", of("blocked 1"), 422, "wrong-kind"},
		{"unknown limit", "/v1/decide", of("secret-key"), 422, "ErrUnknownLimit"},
		{"one budget twice", "/v1/decide", of("tokens, tokens"), 422, "ErrInvalid"},
		{"calls that are not held", "/v1/decide", of("calls"), 422, "wrong-kind"},
		{"hold of a peek", "/v1/peek", hold("tokens"), 400, "invalid-request"},
		{"wait without a hold", "/v1/decide", of("tokens", `"wait_ms":1`), 400, "invalid-request"},
		{"wait is too long", "/v1/decide", of("calls", `"hold_ms":0`,
			fmt.Sprintf(`"wait_ms":%d`, maxWait+1)), 400, "invalid-request"},
		{"hold is far too long", "/v1/decide", of("calls",
			fmt.Sprintf(`"hold_ms":%d`, driver.MaxUnits+1)), 400, "invalid-request"},

		{"force of nothing", "/v1/force", one("tokens", `"n":0`), 400, "invalid-request"},
		{"force without n", "/v1/force", one("tokens", ``), 400, "invalid-request"},
		{"force of too much", "/v1/force", one("tokens", fmt.Sprintf(`"n":%d`, driver.MaxUnits+1)),
			400, "invalid-request"},
		{"force of calls", "/v1/force", one("calls", `"n":1`), 422, "wrong-kind"},
		{"force of a block", "/v1/force", one("blocked", `"n":1`), 422, "wrong-kind"},
		{"force of an unknown limit", "/v1/force", one("x", `"n":1`), 422, "ErrUnknownLimit"},
		{"block for no time", "/v1/block", one("blocked", `"for_ms":0`), 400, "invalid-request"},
		{"block without a time", "/v1/block", one("blocked", ``), 400, "invalid-request"},
		{"block for too long", "/v1/block", one("blocked", `"for_ms":3600001`), 422,
			"ErrExceedsLimit"},
		{"block of a rate", "/v1/block", one("tokens", `"for_ms":1`), 422, "wrong-kind"},
		{"reset of n", "/v1/reset", one("calls", `"n":1`), 400, "invalid-request"},
		{"reset of a limit", "/v1/reset", `{"limit":"calls"}`, 400, "invalid-request"},
		{"reset of null", "/v1/reset", `{"limit":null,"key":"secret-key"}`, 400, "invalid-request"},
		{"reset of an unknown limit", "/v1/reset", one("secret-key", ""), 422, "ErrUnknownLimit"},

		{"id is null", "/v1/settle", `{"id":null}`, 400, "invalid-request"},
		{"id is a number", "/v1/settle", `{"id":1}`, 400, "invalid-request"},
		{"used is null", "/v1/settle", with(`"used":null`), 400, "invalid-request"},
		{"used is empty", "/v1/settle", with(`"used":[]`), 400, "invalid-request"},
		{"used is an object", "/v1/settle", with(`"used":{}`), 400, "invalid-request"},
		{"used is a list of numbers", "/v1/settle", with(`"used":[1,2]`), 400, "invalid-request"},
		{"used of several limits", "/v1/settle", with(`"used":1`), 400, "invalid-request"},
		{"used is negative", "/v1/settle", with(`"used":[{"limit":"tokens","n":-1}]`), 400,
			"invalid-request"},
		{"used is too much", "/v1/settle",
			with(fmt.Sprintf(`"used":[{"limit":"tokens","n":%d}]`, driver.MaxUnits+1)), 400,
			"invalid-request"},
		{"used of nothing", "/v1/settle", with(`"used":[{"n":1}]`), 400, "invalid-request"},
		{"used without n", "/v1/settle", with(`"used":[{"limit":"tokens"}]`), 400,
			"invalid-request"},
		{"used of an unknown limit", "/v1/settle", with(`"used":[{"limit":"secret-key","n":1}]`),
			422, "ErrUnknownLimit"},
		{"used of calls", "/v1/settle", with(`"used":[{"limit":"calls","n":1}]`), 422,
			"wrong-kind"},
		{"used of another key", "/v1/settle", with(`"used":[{"limit":"tokens","key":"l","n":1}]`),
			422, "wrong-kind"},
		{"used twice", "/v1/settle",
			with(`"used":[{"limit":"tokens","n":1},{"limit":"tokens","n":1}]`), 422, "ErrInvalid"},
		{"total of several limits", "/v1/renew", with(`"total":1`), 400, "invalid-request"},
		{"total beyond the limit", "/v1/renew", with(`"total":[{"limit":"tokens","n":101}]`), 422,
			"ErrExceedsLimit"},
		{"total of calls", "/v1/renew", with(`"total":[{"limit":"calls","n":2}]`), 422,
			"wrong-kind"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkTyped(t, h, request(http.MethodPost, tt.path, tt.body), tt.status, tt.typ)
		})
	}
}

// TestIDs: a text that is not an id of this daemon's limits is refused before the store is called.
func TestIDs(t *testing.T) {
	h := flagsAPI(t, testFlags(), untouched{t})
	good := heldID(t, "tokens")
	claimOf := func(limit, more string) string {
		return base64.RawURLEncoding.EncodeToString(
			[]byte(`{"v":2,"i":7,"c":[{"k":"aw==","l":["` + limit + `"],"a":["log3h2"],"n":1}]}` +
				more))
	}
	idOf := func(keys ...string) string {
		var claims []string
		for _, key := range keys {
			claims = append(claims, `{"k":"`+key+`","l":["tokens"],"a":["log3h2"],"n":1}`)
		}
		return base64.RawURLEncoding.EncodeToString(
			[]byte(`{"v":2,"i":7,"c":[` + strings.Join(claims, ",") + `]}`))
	}
	for _, tt := range []struct{ name, id, typ string }{
		{"empty", "", "ErrInvalidToken"},
		{"garbage", "secret-key", "ErrInvalidToken"},
		{"cut", good[:len(good)-5], "ErrInvalidToken"},
		{"line end", good + `\n`, "ErrInvalidToken"},
		{"too long", claimOf("tokens", strings.Repeat(" ", maxID*3/4)), "ErrInvalidToken"},
		{"unknown limit", claimOf("elsewhere", ""), "ErrUnknownLimit"},
		{"too many claims", idOf(slices.Repeat([]string{"aw=="}, maxClaims+1)...),
			"ErrInvalidToken"},
		{"too long a key", idOf(base64.StdEncoding.EncodeToString(make([]byte, maxKey+1))),
			"ErrInvalidToken"},
	} {
		for _, path := range []string{"/v1/settle", "/v1/renew"} {
			t.Run(tt.name+path, func(t *testing.T) {
				checkTyped(t, h, request(http.MethodPost, path, goodBodies(tt.id)[path][0]), 422,
					tt.typ)
			})
		}
	}
	// A text that names one hold twice passes as an id, and the store's contract refuses it.
	twice := strings.Replace(`{"v":2,"i":7,"c":[C,C]}`, "C",
		`{"k":"aw==","l":["tokens"],"a":["log3h2"],"n":1}`, 2)
	s := newScene(t)
	s.ids = []string{base64.RawURLEncoding.EncodeToString([]byte(twice))}
	s.play(step{"/v1/settle", id(1), 422, "ErrInvalidToken", "", 0})
}

// typeName matches what a client must not see of the parser.
var typeName = regexp.MustCompile(`int64|json:|Go |strconv|unmarshal`)

// TestNumbers: a number that no request may have gets 400, whose detail names the field and says
// which numbers it may have.
func TestNumbers(t *testing.T) {
	h := flagsAPI(t, testFlags(), untouched{t})
	held := heldID(t, "tokens 5")
	const units = "from 0 to 1099511627776"
	for _, field := range []struct{ name, path, body, claim, rule string }{
		{"n", "/v1/decide", `{"key":"secret-key","n":%s}`, "", units},
		{"n", "/v1/decide", of("requests, tokens %s"), "claims[1]", units},
		{"n", "/v1/peek", of("tokens %s"), "claims[0]", units},
		{"hold_ms", "/v1/decide", of("calls", `"hold_ms":%s`), "", units},
		{"wait_ms", "/v1/decide", of("calls", `"hold_ms":0`, `"wait_ms":%s`), "", "from 0 to 5000"},
		{"used", "/v1/settle", `{"id":"` + held + `","used":%s}`, "", units},
		{"n", "/v1/settle", `{"id":"` + held + `","used":[{"limit":"tokens","n":%s}]}`,
			"claims[0]", units},
		{"total", "/v1/renew", `{"id":"` + held + `","total":%s}`, "", units},
		{"hold_ms", "/v1/renew", `{"id":"` + held + `","hold_ms":%s}`, "", units},
		{"n", "/v1/force", one("tokens", `"n":%s`), "", "from 1 to 1099511627776"},
		{"for_ms", "/v1/block", one("blocked", `"for_ms":%s`), "", "from 1 to 1099511627776"},
	} {
		bad := []string{
			"9223372036854775808", "-9223372036854775809", "1e3", "1.0", "0.5", "-1", "1e400",
			"-1e400", `"5"`, `""`, "null", "true", "{}", "[]", "[1]", strings.Repeat("9", 5000),
		}
		if strings.HasPrefix(field.rule, "from 1") {
			bad = append(bad, "0", "-0")
		}
		for _, value := range bad {
			want := []string{`"` + field.name + `"`, field.claim, field.rule}
			if value == "[1]" && strings.Contains("used total", field.name) {
				want = []string{"claims[0]"}
			}
			checkNumber(t, h, field.path, fmt.Sprintf(field.body, value), want...)
		}
		checkNumber(t, h, field.path, fmt.Sprintf(field.body, `1,"`+field.name+`":1`),
			`"`+field.name+`" is given twice`, field.claim)
		checkNumber(t, h, field.path, fmt.Sprintf(field.body, "01"), "not JSON")
	}
}

func checkNumber(t *testing.T, h http.Handler, path, body string, want ...string) {
	t.Helper()
	_, p := checkProblem(t, h, request(http.MethodPost, path, body), http.StatusBadRequest)
	detail, _ := p["detail"].(string)
	for _, text := range want {
		if !strings.Contains(detail, text) {
			t.Errorf("%s %.90s: %q has no %q", path, body, detail, text)
		}
	}
	if typeName.MatchString(detail) {
		t.Errorf("%s %.90s: %q", path, body, detail)
	}
}
