package daemon

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// A door is a way to ask, under a limit of its own.
type door struct {
	name  string // of the limit, and the value of the entry door
	limit string // its fields
	asks  []ask  // one or none that is admitted, and then refusals
}

// ask asks once with the name of a door.
type ask func(t *testing.T, d *doors, name string)

// doors are those of a service.
type doors struct {
	url  string
	grpc *grpc.ClientConn
	ids  map[string]string
}

// posts returns an ask that posts a body, in which $ is the name.
func posts(path, body string, want int) ask {
	return func(t *testing.T, d *doors, name string) {
		t.Helper()
		body := strings.ReplaceAll(body, "$", name)
		status, answer := post(t, d.url+path, body)
		if status != want {
			t.Errorf("%s: %s %s: %d %s", name, path, body, status, answer)
		}
		if _, id, ok := strings.Cut(answer, `"id":"`); ok {
			d.ids[name], _, _ = strings.Cut(id, `"`)
		}
	}
}

func decides(body string, want int) ask { return posts("/v1/decide", body, want) }

// three returns a, if it is not nil, and three times b.
func three(a, b ask) []ask {
	if a == nil {
		return []ask{b, b, b}
	}
	return []ask{a, b, b, b}
}

func envoyRequest(name string, n uint64) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "any", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		HitsAddend: wrapperspb.UInt64(n),
		Entries:    []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "door", Value: name}}}}}
}

// envoyAsks asks for n units by Envoy's protocol.
func envoyAsks(n uint64, want rls.RateLimitResponse_Code) ask {
	return func(t *testing.T, d *doors, name string) {
		got, err := rls.NewRateLimitServiceClient(d.grpc).ShouldRateLimit(
			t.Context(), envoyRequest(name, n))
		if err != nil || got.GetOverallCode() != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// kuadrantAsks calls a method of Kuadrant's protocol.
func kuadrantAsks(method string, n uint64, want rls.RateLimitResponse_Code) ask {
	return func(t *testing.T, d *doors, name string) {
		client, req := kuadrant.NewRateLimitServiceClient(d.grpc), envoyRequest(name, n)
		var got interface {
			GetOverallCode() rls.RateLimitResponse_Code
		}
		var err error
		switch method {
		case "check":
			got, err = client.CheckRateLimit(t.Context(), req)
		case "report":
			got, err = client.Report(t.Context(), req)
		case "reserve":
			var r *kuadrant.ReserveResponse
			r, err = client.Reserve(t.Context(), &kuadrant.ReserveRequest{
				Domain: "any", Descriptors: req.GetDescriptors(), Amount: n})
			if err != nil || r.GetCode() != want {
				t.Errorf("%s: %v, %v", name, r, err)
			}
			return
		}
		if err != nil || got.GetOverallCode() != want {
			t.Errorf("%s: %s: %v, %v", name, method, got, err)
		}
	}
}

// proxyAsks asks for a proxy.
func proxyAsks(want int) ask {
	return func(t *testing.T, d *doors, name string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/check", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Door", name)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
}

// renews asks for more of what is held.
func renews(total, want int) ask {
	return func(t *testing.T, d *doors, name string) {
		status, answer := post(t, d.url+"/v1/renew",
			fmt.Sprintf(`{"id":%q,"total":%d}`, d.ids[name], total))
		if status != want {
			t.Errorf("%s: %d %s", name, status, answer)
		}
		if _, id, ok := strings.Cut(answer, `"id":"`); ok {
			d.ids[name], _, _ = strings.Cut(id, `"`)
		}
	}
}

const (
	ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT

	takes     = `{"descriptor":{"door":"$"}}`
	looks     = `{"descriptor":{"door":"$"},"n":0}`
	reserves  = `{"descriptor":{"door":"$"},"hold_ms":0}`
	claims    = `{"claims":[{"limit":"$","key":"$"}]}`
	claimed   = `{"claims":[{"limit":"$","key":"$"}],"hold_ms":0}`
	blocks    = `{"limit":"$","key":"$","for_ms":60000}`
	enveloped = `{"domain":"any","descriptors":[{"entries":[{"key":"door","value":"$"}]}]}`

	anHour = "max: 1/1h"
)

var allDoors = []door{
	{"log", anHour, three(decides(takes, 200), decides(takes, 429))},
	{"bucket", anHour + ", algorithm: bucket", three(decides(takes, 200), decides(takes, 429))},
	{"fixed", anHour + ", algorithm: fixed", three(decides(takes, 200), decides(takes, 429))},
	{"month", "max: 1, algorithm: month", three(decides(takes, 200), decides(takes, 429))},
	{"together", anHour, three(
		decides(`{"descriptor":{"door":"$","with":"another"}}`, 200),
		decides(`{"descriptor":{"door":"$","with":"another"}}`, 429))},
	{"claim", anHour, three(decides(claims, 200), decides(claims, 429))},
	{"look", anHour, three(decides(takes, 200), decides(looks, 429))},
	{"nothing", "max: 0", three(nil, decides(takes, 429))},
	{"nothing-held", "max: 0, holds: 1m", three(nil, decides(reserves, 429))},
	{"too-much", anHour, three(nil, decides(`{"descriptor":{"door":"$"},"n":2}`, 429))},
	{"always", anHour + ", charge: always", three(decides(takes, 200), decides(takes, 429))},
	{"always-too-much", anHour + ", charge: always",
		three(nil, decides(`{"descriptor":{"door":"$"},"n":2}`, 429))},

	{"hold", anHour + ", holds: 1m", three(decides(reserves, 200), decides(reserves, 429))},
	{"hold-claim", anHour + ", holds: 1m", three(decides(claimed, 200), decides(claimed, 429))},
	{"hold-wait", anHour + ", holds: 1m", three(decides(reserves, 200),
		decides(`{"descriptor":{"door":"$"},"hold_ms":0,"wait_ms":1}`, 429))},
	{"extend", "max: 2/1h, holds: 1m", append(
		three(decides(reserves, 200), decides(reserves, 200))[:2],
		renews(2, 429), renews(2, 429), renews(2, 429))},
	// Renewals, which no limit refuses, do not hide the refusals.
	{"renew", anHour + ", holds: 1m", append(three(decides(claimed, 200), renews(1, 200)),
		three(nil, decides(takes, 429))...)},
	{"in-flight", "max: 1, algorithm: in-flight",
		three(decides(reserves, 200), decides(reserves, 429))},
	{"in-flight-claim", "max: 1, algorithm: in-flight",
		three(decides(claimed, 200), decides(claimed, 429))},

	{"block", "max: 1h, algorithm: block",
		three(posts("/v1/block", blocks, 200), decides(takes, 429))},
	{"block-held", "max: 1h, algorithm: block",
		three(posts("/v1/block", blocks, 200), decides(reserves, 429))},
	{"block-claim", "max: 1h, algorithm: block",
		three(posts("/v1/block", blocks, 200), decides(claims, 429))},

	{"proxy", anHour, three(proxyAsks(200), proxyAsks(429))},
	{"proxy-nothing", "max: 0", three(nil, proxyAsks(429))},
	{"json", anHour, three(posts("/json", enveloped, 200), posts("/json", enveloped, 429))},
	{"envoy", anHour, three(envoyAsks(1, ok), envoyAsks(1, over))},
	{"envoy-look", anHour, three(envoyAsks(1, ok), envoyAsks(0, over))},
	{"envoy-nothing", "max: 0", three(nil, envoyAsks(1, over))},
	{"envoy-too-much", anHour, three(nil, envoyAsks(2, over))},
	{"kuadrant", anHour, three(envoyAsks(1, ok), envoyAsks(1, over))},
	{"kuadrant-check", anHour, three(kuadrantAsks("report", 1, ok),
		kuadrantAsks("check", 1, over))},
	{"kuadrant-reserve", anHour + ", holds: 1m", three(
		kuadrantAsks("reserve", 1, ok), kuadrantAsks("reserve", 1, over))},
	{"kuadrant-reserve-no-holds", anHour, three(
		kuadrantAsks("report", 1, ok), kuadrantAsks("reserve", 1, over))},
}

// TestRefusalsAreCounted: what is refused at each door, under each kind of limit, is counted under
// the limit, with an operation that the alert RateLimitRefusesMuch counts.
func TestRefusalsAreCounted(t *testing.T) {
	var file strings.Builder
	file.WriteString("limits:\n")
	for _, d := range allDoors {
		fmt.Fprintf(&file, "- {name: %s, when: {door: %[1]s}, key: [door], %s}\n", d.name, d.limit)
	}
	file.WriteString("- {name: another, when: {with: another}, max: 100/1h}\n")
	url, log, _ := start(t, "--config="+configFile(t, file.String()), "--grpc-addr=127.0.0.1:0",
		"--entry=door=X-Door")
	service := &doors{url, dialEnvoy(t, log), make(map[string]string)}
	for _, d := range allDoors {
		for _, a := range d.asks {
			a(t, service, d.name)
		}
	}
	// An operator who looks, and what is charged afterwards, are no refusals.
	for range 9 {
		posts("/v1/peek", takes, 200)(t, service, "log")
		kuadrantAsks("report", 1, ok)(t, service, "bucket")
	}
	admitted, refused := alerted(t, scrape(t, url))
	for _, d := range allDoors {
		if refused[d.name] != 3 || admitted[d.name] > 2 {
			t.Errorf("%s: the alert counts %d refusals and %d admissions", d.name,
				refused[d.name], admitted[d.name])
		}
	}
}

// alerted returns the decisions that the alert counts, by limit.
func alerted(t *testing.T, scraped string) (admitted, refused map[string]int) {
	t.Helper()
	rules, err := os.ReadFile("../../../docs/metrics/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(rules), "alert: RateLimitRefusesMuch")
	counted := regexp.MustCompile(`ratelimit_op=~"([^"]+)"`).FindStringSubmatch(rule)
	if counted == nil {
		t.Fatal("the alert names no operations")
	}
	op := regexp.MustCompile(`ratelimit_op="(` + counted[1] + `)"`)
	label := regexp.MustCompile(`ratelimit_limit="([^"]+)".*ratelimit_outcome="([^"]+)".* (\d+)$`)
	admitted, refused = make(map[string]int), make(map[string]int)
	for lines := bufio.NewScanner(strings.NewReader(scraped)); lines.Scan(); {
		line := lines.Text()
		found := label.FindStringSubmatch(line)
		if !strings.HasPrefix(line, "ratelimit_decisions_total{") || !op.MatchString(line) ||
			found == nil {
			continue
		}
		n, err := strconv.Atoi(found[3])
		if err != nil {
			t.Fatal(err)
		}
		switch found[2] {
		case "refused":
			refused[found[1]] += n
		case "admitted", "refused_by_other":
			admitted[found[1]] += n
		}
	}
	return admitted, refused
}
