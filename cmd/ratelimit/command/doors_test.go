package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// A doorRequest asks a service for units of a tenant with a plan, or without one if it is "".
type doorRequest struct {
	url          string
	conn         *grpc.ClientConn
	tenant, plan string
	n            int64
}

// A door is a form of request. Its answers are as "allowed 2/5 shadow warned": 2 of 5 units left.
type door struct {
	name string
	ask  func(*testing.T, doorRequest) string
	// has reports whether the form has a place for a request under a limit.
	has func(v doorRequest, limit string) bool
	// says returns the part of an answer that the form has.
	says func(answer string) string
}

// decisions are the forms of a decision.
var decisions = []door{
	{"key", posted("/v1/decide", `{"key":$K,"n":$N}`),
		func(v doorRequest, _ string) bool { return v.plan == "" }, everything},
	{"descriptor", posted("/v1/decide", `{"descriptor":$E,"n":$N}`), always, everything},
	{"descriptors", posted("/v1/decide", `{"descriptors":[{"entries":$E,"n":$N}]}`), always,
		everything},
	{"claim", posted("/v1/decide", `{"claims":[{"limit":"units","key":$K,"entries":$P,"n":$N}]}`),
		always, everything},
	{"held descriptor", posted("/v1/decide", `{"hold_ms":0,"descriptor":$E,"n":$N}`), always,
		everything},
	{"held claim", posted("/v1/decide",
		`{"hold_ms":0,"claims":[{"limit":"units","key":$K,"entries":$P,"n":$N}]}`), always,
		everything},
	{"forward auth", askProxy, func(v doorRequest, _ string) bool { return v.n == 1 }, everything},
	{"ShouldRateLimit", askEnvoy, always, envoySays},
	{"JSON of Envoy", askJSON, always, envoySays},
	// An amount of 0 asks whether a unit is free, and without holds nothing is charged.
	{"Reserve", askReserve, func(v doorRequest, limit string) bool {
		return v.n > 0 && strings.Contains(limit, "holds")
	}, allowedOnly},
}

// peeks are the forms that say what a decision would be.
var peeks = []door{
	{"peek of a descriptor", posted("/v1/peek", `{"descriptor":$E,"n":$N}`), always, everything},
	{"peek of a claim",
		posted("/v1/peek", `{"claims":[{"limit":"units","key":$K,"entries":$P,"n":$N}]}`), always,
		everything},
	{"CheckRateLimit", askCheck, func(v doorRequest, _ string) bool { return v.n > 0 },
		allowedOnly},
}

func always(doorRequest, string) bool { return true }

func everything(answer string) string { return answer }

func allowedOnly(answer string) string {
	word, _, _ := strings.Cut(answer, " ")
	return word
}

// envoySays leaves out what Envoy's protocol has no field for: shadow, warned, and what a limit has
// left that refuses.
func envoySays(answer string) string {
	words := strings.Fields(answer)
	if words[0] == "refused" || words[1] == "unasked" {
		return words[0]
	}
	return words[0] + " " + words[1]
}

// posted returns a form of the HTTP API, whose body has $E for the entries, $K for the key, $P for
// the entries that are not in the key, and $N for the units.
func posted(path, body string) func(*testing.T, doorRequest) string {
	return func(t *testing.T, v doorRequest) string {
		t.Helper()
		entries, more := fmt.Sprintf(`{"key":%q}`, v.tenant), `{}`
		if v.plan != "" {
			entries = fmt.Sprintf(`{"key":%q,"plan":%q}`, v.tenant, v.plan)
			more = fmt.Sprintf(`{"plan":%q}`, v.plan)
		}
		_, text := post(t, v.url+path, strings.NewReplacer("$E", entries, "$P", more,
			"$K", fmt.Sprintf("%q", v.tenant), "$N", fmt.Sprint(v.n)).Replace(body))
		return decisionIn(text)
	}
}

// decisionIn returns the answer that the body of a decision on one limit has.
func decisionIn(text string) string {
	var d struct {
		Allowed *bool
		Limits  []struct {
			Source           string
			Limit, Remaining int64
			Shadow, Warned   bool
		}
	}
	err := json.Unmarshal([]byte(text), &d)
	if err != nil || d.Allowed == nil || len(d.Limits) != 1 {
		return text
	}
	l := d.Limits[0]
	answer := decidedText(*d.Allowed, l.Remaining, l.Limit)
	if l.Source == "none" {
		answer = allowedOnly(answer) + " unasked"
	}
	if l.Shadow {
		answer += " shadow"
	}
	if l.Warned {
		answer += " warned"
	}
	return answer
}

func decidedText(allowed bool, remaining, limit int64) string {
	word := "refused"
	if allowed {
		word = "allowed"
	}
	return fmt.Sprintf("%s %d/%d", word, remaining, limit)
}

func askProxy(t *testing.T, v doorRequest) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.url+"/v1/check", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Key", v.tenant)
	if v.plan != "" {
		r.Header.Set("X-Plan", v.plan)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return decisionIn(string(text))
}

// envoyRequest returns the request of Envoy's protocol.
func (v doorRequest) envoyRequest() *rls.RateLimitRequest {
	entries := []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "key", Value: v.tenant}}
	if v.plan != "" {
		entries = append(entries,
			&ratelimitv3.RateLimitDescriptor_Entry{Key: "plan", Value: v.plan})
	}
	return &rls.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Entries: entries, HitsAddend: wrapperspb.UInt64(uint64(v.n))}}}
}

func askEnvoy(t *testing.T, v doorRequest) string {
	t.Helper()
	res, err := rls.NewRateLimitServiceClient(v.conn).ShouldRateLimit(t.Context(), v.envoyRequest())
	if err != nil {
		t.Fatal(err)
	}
	return envoyAnswer(res)
}

func envoyAnswer(res *rls.RateLimitResponse) string {
	allowed, status := res.GetOverallCode() == rls.RateLimitResponse_OK, res.GetStatuses()[0]
	if !allowed || status.GetCurrentLimit() == nil {
		return allowedOnly(decidedText(allowed, 0, 0))
	}
	return decidedText(allowed, int64(status.GetLimitRemaining()),
		int64(status.GetCurrentLimit().GetRequestsPerUnit()))
}

func askJSON(t *testing.T, v doorRequest) string {
	t.Helper()
	body, err := protojson.Marshal(v.envoyRequest())
	if err != nil {
		t.Fatal(err)
	}
	_, text := post(t, v.url+"/json", string(body))
	var res rls.RateLimitResponse
	if err := protojson.Unmarshal([]byte(text), &res); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return envoyAnswer(&res)
}

func askCheck(t *testing.T, v doorRequest) string {
	t.Helper()
	res, err := kuadrant.NewRateLimitServiceClient(v.conn).CheckRateLimit(t.Context(),
		v.envoyRequest())
	if err != nil {
		t.Fatal(err)
	}
	return allowedOnly(decidedText(res.GetOverallCode() == rls.RateLimitResponse_OK, 0, 0))
}

func askReserve(t *testing.T, v doorRequest) string {
	t.Helper()
	res, err := kuadrant.NewRateLimitServiceClient(v.conn).Reserve(t.Context(),
		&kuadrant.ReserveRequest{Domain: "shop", Amount: uint64(v.n),
			Descriptors: v.envoyRequest().GetDescriptors()})
	if err != nil {
		t.Fatal(err)
	}
	return allowedOnly(decidedText(res.GetCode() == rls.RateLimitResponse_OK, 0, 0))
}

// serveUnits starts a service with a limit of the name units and the key [key].
func serveUnits(t *testing.T, limit string) doorRequest {
	t.Helper()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	apitest.WriteFile(t, file, "limits:\n  - {name: units, key: [key], "+limit+"}\n")
	address, log, _ := start(t, "--config="+file, "--grpc-addr=127.0.0.1:0", "--entry=key=X-Key",
		"--entry=plan=X-Plan")
	return doorRequest{url: address, conn: dialEnvoy(t, log)}
}

// TestDoors: whichever form a request has, its answer under a limit is the same.
func TestDoors(t *testing.T) {
	type step struct {
		n    int64
		plan string
		want string
	}
	enforced := []step{{0, "", "allowed 4/4"}, {1, "", "allowed 3/4"}, {2, "", "allowed 1/4"},
		{2, "", "refused 1/4"}, {1, "", "allowed 0/4"}, {1, "", "refused 0/4"},
		{0, "", "refused 0/4"}}
	shadow := []step{{0, "", "allowed 2/2 shadow"}, {1, "", "allowed 1/2 shadow"},
		{2, "", "allowed 1/2 shadow"}, {1, "", "allowed 0/2 shadow"},
		{1, "", "allowed 0/2 shadow"}, {0, "", "allowed 0/2 shadow"}}
	plans := []step{{1, "free", "allowed 1/2"}, {2, "free", "refused 1/2"},
		{11, "pro", "allowed 88/100"}, {1, "free", "refused 0/2"}, {88, "pro", "allowed 0/100"},
		{1, "pro", "refused 0/100"}}
	for _, algorithm := range []string{"log", "bucket"} {
		for _, row := range []struct {
			name, limit string
			steps       []step
		}{
			{"enforced", "max: 4/1h", enforced},
			{"holds", "max: 4/1h, holds: 1m", enforced},
			{"shadow", "max: 2/1h, mode: shadow", shadow},
			{"by", "max: 2/1h, by: {entry: plan, pro: 100/1h}", plans},
			{"by, holds", "max: 2/1h, holds: 1m, by: {entry: plan, pro: 100/1h}", plans},
			{"except", "max: 2/1h, except: [{when: {plan: pro}, max: 100/1h}]", plans},
			{"except of the key", "max: 2/1h, except: [{when: {key: t-*}, max: 4/1h}]", enforced},
			{"except unlimited", "max: 2/1h, except: [{when: {plan: pro}, max: unlimited}]",
				[]step{{2, "free", "allowed 0/2"}, {9, "pro", "allowed unasked"},
					{1, "free", "refused 0/2"}, {0, "pro", "allowed unasked"}}},
			{"charge", "max: 4/1h, charge: always", []step{{3, "", "allowed 1/4"},
				{2, "", "refused 0/4"}, {1, "", "refused 0/4"}}},
			{"warn", "max: 4/1h, warn: 50%", []step{{1, "", "allowed 3/4"},
				{1, "", "allowed 2/4 warned"}, {1, "", "allowed 1/4 warned"},
				{2, "", "refused 1/4 warned"}}},
			{"shadow, by, warn",
				"max: 2/1h, by: {entry: plan, pro: 100/1h}, mode: shadow, warn: 50%",
				[]step{{2, "free", "allowed 0/2 shadow warned"},
					{8, "pro", "allowed 90/100 shadow"}, {1, "free", "allowed 0/2 shadow warned"},
					{95, "pro", "allowed 90/100 shadow"}}},
			{"charge, by, warn",
				"max: 2/1h, by: {entry: plan, pro: 100/1h}, charge: always, warn: 50%",
				[]step{{1, "free", "allowed 1/2 warned"}, {9, "pro", "allowed 90/100"},
					{91, "pro", "refused 0/100 warned"}, {1, "free", "refused 0/2 warned"}}},
		} {
			t.Run(algorithm+"/"+row.name, func(t *testing.T) {
				limit := row.limit + ", algorithm: " + algorithm
				v := serveUnits(t, limit)
				for _, d := range decisions {
					v.tenant = "t-" + d.name
					for i, step := range row.steps {
						v.n, v.plan = step.n, step.plan
						form := d
						if !d.has(v, limit) { // the history of the tenant goes on
							form = decisions[1]
						}
						peeked := peeks[0].ask(t, v)
						for _, p := range peeks {
							got := p.ask(t, v)
							if p.has(v, limit) && (got != p.says(peeked) ||
								allowedOnly(got) != allowedOnly(step.want)) {
								t.Errorf("%s, step %d: %s: %s, want %s before %s",
									d.name, i, p.name, got, peeked, step.want)
							}
						}
						if got := form.ask(t, v); got != form.says(step.want) {
							t.Errorf("%s, step %d: %s, want %s", form.name, i, got, step.want)
						}
					}
				}
			})
		}
	}
}

// TestDoorOfClaims: a claim has the mode and the rates of its limit.
func TestDoorOfClaims(t *testing.T) {
	ask := func(t *testing.T, v doorRequest, path, body string, status int, want string) string {
		t.Helper()
		got, text := post(t, v.url+path, body)
		if got != status || !strings.Contains(text, want) {
			t.Errorf("%s %s: %d %s, want %d %s", path, body, got, text, status, want)
		}
		return text
	}
	const claim = `"claims":[{"limit":"units","key":"k"`
	t.Run("the second claim under a limit in shadow mode is admitted", func(t *testing.T) {
		v := serveUnits(t, "max: 1/1m, mode: shadow")
		for range 2 {
			ask(t, v, "/v1/decide", `{`+claim+`}]}`, 200, `"allowed":true`)
		}
	})
	t.Run("a limit in shadow mode refuses no hold, however long", func(t *testing.T) {
		v := serveUnits(t, "max: 4/1h, holds: 1m, mode: shadow")
		ask(t, v, "/v1/decide", `{"hold_ms":1,`+claim+`}]}`, 200, `"remaining":3`)
		ask(t, v, "/v1/decide", `{"hold_ms":1,"descriptor":{"key":"k"}}`, 200, `"remaining":2`)
	})
	t.Run("a limit in shadow mode does not keep others from being charged", func(t *testing.T) {
		v := serveUnits(t, "max: 1/1h, mode: shadow}\n  - {name: other, key: [key], max: 3/1h")
		for _, left := range []string{"2", "1", "0"} {
			ask(t, v, "/v1/decide", `{`+claim+`},{"limit":"other","key":"k"}]}`, 200,
				`{"name":"other","window_ms":3600000,"allowed":true,"source":"store","limit":3,`+
					`"remaining":`+left)
		}
		ask(t, v, "/v1/decide", `{`+claim+`},{"limit":"other","key":"k"}]}`, 429, `"name":"other"`)
	})
	t.Run("a claim of a pro tenant with 88 of 100 left is admitted", func(t *testing.T) {
		v := serveUnits(t, "max: 2/1m, by: {entry: plan, pro: 100/1m}")
		ask(t, v, "/v1/decide", `{"descriptor":{"key":"k","plan":"pro"},"n":12}`, 200,
			`"limit":100`)
		ask(t, v, "/v1/decide", `{`+claim+`,"entries":{"plan":"pro"}}]}`, 200,
			`"limit":100,"remaining":87`)
	})
	for _, rates := range []string{"by: {entry: plan, pro: 100/1h}",
		"except: [{when: {plan: pro}, max: 100/1h}]"} {
		t.Run("only decisions need the entry of "+rates, func(t *testing.T) {
			v := serveUnits(t, "max: 2/1h, holds: 1m, "+rates)
			const missing = `claims[0] needs \"plan\" in \"entries\"`
			const pro = `,"entries":{"plan":"pro"}`
			ask(t, v, "/v1/decide", `{`+claim+`}]}`, 422, missing)
			ask(t, v, "/v1/decide", `{`+claim+`,"n":0}]}`, 422, missing)
			ask(t, v, "/v1/decide", `{"hold_ms":0,`+claim+`}]}`, 422, missing)
			ask(t, v, "/v1/peek", `{`+claim+`}]}`, 200, `"limit":2,"remaining":2`)
			held := ask(t, v, "/v1/decide", `{"hold_ms":0,`+claim+pro+`,"n":9}]}`, 200,
				`"remaining":91`)
			_, id, _ := strings.Cut(held, `"id":"`)
			id, _, _ = strings.Cut(id, `"`)
			ask(t, v, "/v1/renew", `{"id":"`+id+`","hold_ms":60000}`, 200, `"id"`)
			ask(t, v, "/v1/settle", `{"id":"`+id+`","used":12}`, 204, "")
			ask(t, v, "/v1/force", `{"limit":"units","key":"k","n":1}`, 200,
				`"limit":2,"remaining":0`)
			ask(t, v, "/v1/decide", `{`+claim+pro+`}]}`, 200, `"remaining":86`)
			ask(t, v, "/v1/reset", `{"limit":"units","key":"k"}`, 204, "")
			ask(t, v, "/v1/decide", `{`+claim+pro+`}]}`, 200, `"remaining":99`)
		})
	}
}
