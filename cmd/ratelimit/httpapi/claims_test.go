package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestClaimsOfFile: a claim on a limit of a file gets the answer that a descriptor gets, with the
// mode and the rates of the limit.
func TestClaimsOfFile(t *testing.T) {
	const file = `limits:
  - {name: trial, key: [tenant], max: 1/1m, mode: shadow}
  - {name: units, key: [tenant], max: 2/1m, by: {entry: plan, pro: 100/1m, none: 0},
     holds: 1m}
  - name: calls
    key: [tenant, user]
    max: 2/1m
    except:
      - {when: {tenant: acme, path: /free*}, max: unlimited}
      - {when: {user: a/b%}, max: 5/1m}
  - {name: budget, key: [tenant], max: 3/1m, charge: always, warn: 50%}
  - {name: closed, key: [tenant], max: 0}
  - {name: open, key: [tenant], max: unlimited}
  - {name: blocked, key: [tenant], max: 1h, algorithm: block,
     except: [{when: {tenant: short}, max: 1m}, {when: {tenant: long}, max: 2h}]}
  - {name: pairs, key: [one, two], max: 3/1m, holds: 1m}
`
	long := strings.Repeat("k", 512)
	claim := func(limit, more string) string {
		return fmt.Sprintf(`{"claims":[{"limit":%q,%s}]}`, limit, more)
	}
	total := func(n int) string {
		return fmt.Sprintf(
			`{"id":"$1","total":[{"limit":"units","n":%d,"entries":{"plan":"pro"}}]}`, n)
	}
	const tenant, pro = `"key":"t"`, `"key":"t","entries":{"plan":"pro"}`
	for name, steps := range map[string][]struct {
		path, body string
		status     int
		want       string // in the answer, as "limit=100 remaining=88"
	}{
		"a shadow refuses nothing": {
			{"/v1/decide", claim("trial", tenant), 200, "allowed=true"},
			{"/v1/decide", claim("trial", tenant), 200, "allowed=true"},
			{"/v1/decide", claim("trial", tenant+`,"n":9`), 200, "allowed=true"},
		},
		"a plan has its rate": {
			{"/v1/decide", claim("units", pro+`,"n":12`), 200, "limit=100 remaining=88"},
			{"/v1/decide", claim("units", pro), 200, "limit=100 remaining=87"},
			{"/v1/decide", claim("units", tenant), 422, `needs "plan"`},
			{"/v1/decide", claim("units", tenant+`,"n":0`), 422, `needs "plan"`},
			{"/v1/decide", claim("units", `"key":"u","entries":{"plan":""},"n":3`), 422, "is 2."},
			{"/v1/decide", claim("units", pro+`,"n":101`), 422, "is 100."},
		},
		"a hold needs the plan too": {
			{"/v1/decide", `{"hold_ms":0,` + claim("units", tenant)[1:], 422, `needs "plan"`},
			{"/v1/decide", `{"hold_ms":0,` + claim("units", pro+`,"n":50`)[1:], 200,
				"remaining=50"},
			{"/v1/renew", `{"id":"$1","total":60}`, 422, `needs "plan"`},
			{"/v1/renew", total(101), 422, "is 100."},
			{"/v1/renew", total(60), 200, ""},
			{"/v1/renew", `{"id":"$1","total":50}`, 200, ""},
			{"/v1/settle", `{"id":"$2","used":70}`, 204, ""},
			{"/v1/decide", claim("units", pro), 200, "limit=100 remaining=29"},
		},
		"a peek says that what is always charged is refused": {
			{"/v1/peek", claim("budget", tenant+`,"n":4`), 200, "allowed=false"},
			{"/v1/decide", claim("budget", tenant+`,"n":4`), 429, "allowed=false"},
		},
		"a block is as long as the key allows": {
			{"/v1/block", `{"limit":"blocked","key":"t","for_ms":3600001}`, 422, "at most 1h"},
			{"/v1/block", `{"limit":"blocked","key":"short","for_ms":60001}`, 422, "at most 1m"},
			{"/v1/block", `{"limit":"blocked","key":"long","for_ms":7200000}`, 200, ""},
		},
		"what never fits binds": {
			{"/v1/decide", claim("budget", tenant+`,"n":3`), 200, "remaining=0"},
			{"/v1/decide", `{"claims":[{"limit":"budget","key":"t"},{"limit":"closed","key":"t"}]}`,
				429, "never=true"},
		},
		"the longest key": {
			{"/v1/decide", fmt.Sprintf(`{"hold_ms":0,"descriptor":{"one":%q,"two":%q}}`,
				long, long), 200, "remaining=2"},
			{"/v1/renew", `{"id":"$1","total":2}`, 200, ""},
			{"/v1/settle", `{"id":"$1","used":2}`, 204, ""},
			{"/v1/decide", claim("pairs", fmt.Sprintf(`"key":"%s/%s"`, long, long)), 200,
				"remaining=0"},
			{"/v1/reset", fmt.Sprintf(`{"limit":"pairs","key":"%s/%s"}`, long, long), 204, ""},
		},
		"a rate of no units holds no more": {
			{"/v1/decide", `{"hold_ms":0,` + claim("units", pro)[1:], 200, ""},
			{"/v1/renew",
				`{"id":"$1","total":[{"limit":"units","n":2,"entries":{"plan":"none"}}]}`,
				422, "is 0."},
			{"/v1/settle", `{"id":"$1","used":1}`, 204, ""},
		},
		"a total that is held already fits": {
			{"/v1/decide", `{"hold_ms":0,"claims":[{"limit":"units",` + pro + `,"n":50},` +
				`{"limit":"units","key":"u","entries":{"plan":"pro"}}]}`, 200, ""},
			{"/v1/renew", `{"id":"$1","total":[{"limit":"units","key":"t","n":50},` +
				`{"limit":"units","key":"u","n":2,"entries":{"plan":""}}]}`, 200, ""},
		},
		"nothing but a decision needs the plan": {
			{"/v1/peek", claim("units", tenant), 200, "limit=2 remaining=2"},
			{"/v1/force", `{"limit":"units","key":"t","n":5}`, 200, "remaining=0"},
			{"/v1/reset", `{"limit":"units","key":"t"}`, 204, ""},
			{"/v1/decide", claim("units", pro), 200, "limit=100 remaining=99"},
		},
		"the key has the entries of the limit": {
			{"/v1/decide", claim("calls", `"key":"acme/a%2Fb%25"`), 422, `needs "path"`},
			{"/v1/decide", claim("calls", `"key":"acme/bob","entries":{"path":"/free"}`), 200,
				"source=none"},
			{"/v1/decide", claim("calls", `"key":"zoo/a%2Fb%25"`), 200, "limit=5 remaining=4"},
			{"/v1/decide", claim("calls", `"key":"zoo/ann"`), 200, "limit=2 remaining=1"},
			{"/v1/decide", claim("calls", `"key":"zoo/a%2Fb%25","entries":{"user":"ann"}`), 200,
				"limit=5 remaining=3"},
			{"/v1/decide", claim("calls", `"key":"neither"`), 422, `needs "path"`},
		},
		"always charges": {
			{"/v1/decide", claim("budget", tenant+`,"n":2`), 200, "remaining=1 warned=true"},
			{"/v1/decide", claim("budget", tenant+`,"n":9`), 429, "never=true"},
			{"/v1/peek", claim("budget", tenant), 200, "allowed=false remaining=0"},
		},
		"rates that do not count": {
			{"/v1/decide", claim("closed", tenant), 429, "never=true source=none"},
			{"/v1/decide", claim("open", tenant), 200, "allowed=true source=none"},
			{"/v1/reset", `{"limit":"open","key":"t"}`, 422, "names a limit"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fileScene(t, file)
			for _, step := range steps {
				status, _, answer := s.post(step.path, step.body)
				detail, _ := answer["detail"].(string)
				if status != step.status {
					t.Fatalf("%s %s: %d %v, want %d", step.path, step.body, status, answer,
						step.status)
				}
				for want := range strings.FieldsSeq(step.want) {
					name, value, field := strings.Cut(want, "=")
					switch {
					case status == http.StatusUnprocessableEntity:
						if !strings.Contains(detail, step.want) {
							t.Errorf("%s: %s, want %s", step.body, detail, step.want)
						}
					case field && fmt.Sprint(answer[name]) != value:
						t.Errorf("%s: %v, want %s", step.body, answer, want)
					}
				}
			}
		})
	}
}

// TestFlagsByName: descriptors and proxies do not meet the limits of --in-flight and --block, which
// only names reach.
func TestFlagsByName(t *testing.T) {
	s := newScene(t)
	s.play(step{"/v1/block", one("blocked", `"for_ms":60000`), 200, "", "", 0})
	for _, body := range []string{`{"descriptor":{"key":"secret-key"}}`, `{"key":"secret-key"}`} {
		status, _, answer := s.post("/v1/decide", body)
		if limits := fmt.Sprint(answer["limits"]); status != http.StatusOK ||
			strings.Contains(limits, "blocked") || strings.Contains(limits, "calls") {
			t.Errorf("%s: %d %v", body, status, limits)
		}
	}
	s.play(step{"/v1/decide", of("blocked"), 429, "", "", 0})
	_, _, answer := s.post("/v1/explain", `{"descriptor":{"key":"a"}}`)
	if others := fmt.Sprint(answer["others"]); strings.Count(others, "only claims that name") != 2 {
		t.Errorf("the others are %s", others)
	}
}

// TestResetOfManyLimits: a key is reset under any number of limits.
func TestResetOfManyLimits(t *testing.T) {
	var file strings.Builder
	file.WriteString("limits:\n")
	for i := range 300 {
		fmt.Fprintf(&file,
			"  - {name: l%d, when: {key: \"*\", n: \"%d\"}, key: [key], max: 1/1m}\n", i, i)
	}
	s := fileScene(t, file.String())
	body := func(i int) string {
		return fmt.Sprintf(`{"descriptor":{"key":"k","n":"%d"}}`, i)
	}
	for _, i := range []int{0, 299} {
		s.play(step{"/v1/decide", body(i), 200, "", "", 0},
			step{"/v1/decide", body(i), 429, "", "", 0})
	}
	s.play(step{"/v1/reset", `{"key":"k"}`, 204, "", "", time.Second})
	for _, i := range []int{0, 299} {
		s.play(step{"/v1/decide", body(i), 200, "", "", 0})
	}
}

// TestUnitsOfClaims: more units than any limit has exceed it, whatever its mode.
func TestUnitsOfClaims(t *testing.T) {
	s := fileScene(t, `limits:
  - {name: units, key: [tenant], max: 2/1m}
  - {name: trial, key: [tenant], max: 2/1m, mode: shadow}
  - {name: always, key: [tenant], max: 2/1m, charge: always}
`)
	for _, limit := range []string{"units", "trial", "always"} {
		s.play(step{"/v1/decide", fmt.Sprintf(
			`{"claims":[{"limit":%q,"key":"a","n":1099511627777}]}`, limit),
			422, "ErrExceedsLimit", "", 0})
	}
}
