package command

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

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// A refusalCase has requests under a limit of its own that are refused.
type refusalCase struct {
	name     string     // of the limit, and the value of the entry case
	limit    string     // its fields
	requests []sendCase // first those that are admitted, at most two, and then three refusals
}

// A sendCase sends a request with the name of a case.
type sendCase func(t *testing.T, c *serviceClient, name string)

// A serviceClient sends requests to a service, and keeps the newest ID of each case.
type serviceClient struct {
	url  string
	grpc *grpc.ClientConn
	ids  map[string]string
}

// posting returns a function that posts a body, in which $ is the name.
func posting(path, body string, want int) sendCase {
	return func(t *testing.T, c *serviceClient, name string) {
		t.Helper()
		body := strings.ReplaceAll(body, "$", name)
		status, answer := post(t, c.url+path, body)
		if status != want {
			t.Errorf("%s: %s %s: %d %s", name, path, body, status, answer)
		}
		if _, id, ok := strings.Cut(answer, `"id":"`); ok {
			c.ids[name], _, _ = strings.Cut(id, `"`)
		}
	}
}

func decides(body string, want int) sendCase { return posting("/v1/decide", body, want) }

// three returns a, if it is not nil, and three times b.
func three(a, b sendCase) []sendCase {
	if a == nil {
		return []sendCase{b, b, b}
	}
	return []sendCase{a, b, b, b}
}

func envoyRequest(name string, n uint64) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "any", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		HitsAddend: wrapperspb.UInt64(n),
		Entries:    []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "case", Value: name}}}}}
}

// envoyCalls asks for n units by Envoy's protocol.
func envoyCalls(n uint64, want rls.RateLimitResponse_Code) sendCase {
	return func(t *testing.T, c *serviceClient, name string) {
		got, err := rls.NewRateLimitServiceClient(c.grpc).ShouldRateLimit(
			t.Context(), envoyRequest(name, n))
		if err != nil || got.GetOverallCode() != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// kuadrantCalls calls a method of Kuadrant's protocol.
func kuadrantCalls(method string, n uint64, want rls.RateLimitResponse_Code) sendCase {
	return func(t *testing.T, c *serviceClient, name string) {
		client, req := kuadrant.NewRateLimitServiceClient(c.grpc), envoyRequest(name, n)
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

// proxyRequests asks as a proxy does.
func proxyRequests(want int) sendCase {
	return func(t *testing.T, c *serviceClient, name string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+"/v1/check", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Case", name)
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
func renews(total, want int) sendCase {
	return func(t *testing.T, c *serviceClient, name string) {
		status, answer := post(t, c.url+"/v1/renew",
			fmt.Sprintf(`{"id":%q,"total":%d}`, c.ids[name], total))
		if status != want {
			t.Errorf("%s: %d %s", name, status, answer)
		}
		if _, id, ok := strings.Cut(answer, `"id":"`); ok {
			c.ids[name], _, _ = strings.Cut(id, `"`)
		}
	}
}

const (
	ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT

	takes     = `{"descriptor":{"case":"$"}}`
	looks     = `{"descriptor":{"case":"$"},"n":0}`
	reserves  = `{"descriptor":{"case":"$"},"hold_ms":0}`
	claims    = `{"claims":[{"limit":"$","key":"$"}]}`
	claimed   = `{"claims":[{"limit":"$","key":"$"}],"hold_ms":0}`
	blocks    = `{"limit":"$","key":"$","for_ms":60000}`
	enveloped = `{"domain":"any","descriptors":[{"entries":[{"key":"case","value":"$"}]}]}`

	anHour = "max: 1/1h"
)

var refusalCases = []refusalCase{
	{"log", anHour, three(decides(takes, 200), decides(takes, 429))},
	{"bucket", anHour + ", algorithm: bucket", three(decides(takes, 200), decides(takes, 429))},
	{"fixed", anHour + ", algorithm: fixed", three(decides(takes, 200), decides(takes, 429))},
	{"month", "max: 1, algorithm: month", three(decides(takes, 200), decides(takes, 429))},
	{"together", anHour, three(
		decides(`{"descriptor":{"case":"$","with":"another"}}`, 200),
		decides(`{"descriptor":{"case":"$","with":"another"}}`, 429))},
	{"claim", anHour, three(decides(claims, 200), decides(claims, 429))},
	{"look", anHour, three(decides(takes, 200), decides(looks, 429))},
	{"nothing", "max: 0", three(nil, decides(takes, 429))},
	{"nothing-held", "max: 0, holds: 1m", three(nil, decides(reserves, 429))},
	{"too-much", anHour, three(nil, decides(`{"descriptor":{"case":"$"},"n":2}`, 429))},
	{"always", anHour + ", charge: always", three(decides(takes, 200), decides(takes, 429))},
	{"always-too-much", anHour + ", charge: always",
		three(nil, decides(`{"descriptor":{"case":"$"},"n":2}`, 429))},

	{"hold", anHour + ", holds: 1m", three(decides(reserves, 200), decides(reserves, 429))},
	{"hold-claim", anHour + ", holds: 1m", three(decides(claimed, 200), decides(claimed, 429))},
	{"hold-wait", anHour + ", holds: 1m", three(decides(reserves, 200),
		decides(`{"descriptor":{"case":"$"},"hold_ms":0,"wait_ms":1}`, 429))},
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
		three(posting("/v1/block", blocks, 200), decides(takes, 429))},
	{"block-held", "max: 1h, algorithm: block",
		three(posting("/v1/block", blocks, 200), decides(reserves, 429))},
	{"block-claim", "max: 1h, algorithm: block",
		three(posting("/v1/block", blocks, 200), decides(claims, 429))},

	{"proxy", anHour, three(proxyRequests(200), proxyRequests(429))},
	{"proxy-nothing", "max: 0", three(nil, proxyRequests(429))},
	{"json", anHour, three(posting("/json", enveloped, 200), posting("/json", enveloped, 429))},
	{"envoy", anHour, three(envoyCalls(1, ok), envoyCalls(1, over))},
	{"envoy-look", anHour, three(envoyCalls(1, ok), envoyCalls(0, over))},
	{"envoy-nothing", "max: 0", three(nil, envoyCalls(1, over))},
	{"envoy-too-much", anHour, three(nil, envoyCalls(2, over))},
	{"kuadrant", anHour, three(envoyCalls(1, ok), envoyCalls(1, over))},
	{"kuadrant-check", anHour, three(kuadrantCalls("report", 1, ok),
		kuadrantCalls("check", 1, over))},
	{"kuadrant-reserve", anHour + ", holds: 1m", three(
		kuadrantCalls("reserve", 1, ok), kuadrantCalls("reserve", 1, over))},
	{"kuadrant-reserve-no-holds", anHour, three(
		kuadrantCalls("report", 1, ok), kuadrantCalls("reserve", 1, over))},
}

// TestRefusalsAreCounted: refusals of each request, under each kind of limit, are counted under the
// limit, with an operation that the alert RateLimitRefusesMuch counts.
func TestRefusalsAreCounted(t *testing.T) {
	var file strings.Builder
	file.WriteString("limits:\n")
	for _, c := range refusalCases {
		fmt.Fprintf(&file, "- {name: %s, when: {case: %[1]s}, key: [case], %s}\n", c.name, c.limit)
	}
	file.WriteString("- {name: another, when: {with: another}, max: 100/1h}\n")
	url, log, _ := start(t, "--config="+apitest.ConfigFile(t, file.String()),
		"--grpc-addr=127.0.0.1:0",
		"--entry=case=X-Case")
	service := &serviceClient{url, dialEnvoy(t, log), make(map[string]string)}
	for _, c := range refusalCases {
		for _, request := range c.requests {
			request(t, service, c.name)
		}
	}
	// An operator who looks, and what is charged afterwards, are no refusals.
	for range 9 {
		posting("/v1/peek", takes, 200)(t, service, "log")
		kuadrantCalls("report", 1, ok)(t, service, "bucket")
	}
	admitted, refused := alerted(t, apitest.Scrape(t, url))
	for _, c := range refusalCases {
		if refused[c.name] != 3 || admitted[c.name] > 2 {
			t.Errorf("%s: the alert counts %d refusals and %d admissions", c.name,
				refused[c.name], admitted[c.name])
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
