package command

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// A callCase sends a request for 400 units of a descriptor, under all limits that have its entry
// use.
type callCase struct {
	name  string
	send  func(t *testing.T, url string, conn *grpc.ClientConn, use string)
	units int64 // taken or held of a budget
	calls int64 // held of a limit of calls in flight
}

// callCases are all requests for units of descriptors.
var callCases = []callCase{
	{"decide", decideCall(`"descriptor":{"use":%q},"n":400,"hold_ms":0`), 400, 1},
	{"decide, more than the limit of calls", decideCall(
		`"descriptor":{"use":%q},"n":999,"hold_ms":0`), 999, 1},
	{"decide, two descriptors", decideCall(`"hold_ms":0,"descriptors":[` +
		`{"entries":{"use":%[1]q},"n":300},{"entries":{"use":%[1]q,"more":"x"}}]`), 301, 2},
	{"decide nothing", decideCall(`"descriptor":{"use":%q},"n":0,"hold_ms":0`), 0, 0},
	{"peek", postCall("/v1/peek", `"descriptor":{"use":%q},"n":400`), 0, 0},
	{"settle", settleCall(`,"used":500`), 500, 0},
	{"settle nothing", settleCall(`,"used":0`), 0, 0},
	{"renew", renewCall, 500, 1},
	{"reserve", reserveCall, 400, 1},
}

const callsFile = `
limits:
  - {name: calls, when: {use: "*"}, key: [use], max: 20, algorithm: in-flight, holds: 10m}
`

// TestOneCall: a descriptor is one call in flight, whatever units it takes of other limits.
func TestOneCall(t *testing.T) {
	var file strings.Builder
	file.WriteString(callsFile)
	var uses []string
	for _, name := range algorithms.OfService() {
		if name == algorithms.InFlight || name == algorithms.Block {
			continue
		}
		window := "/24h"
		if algorithms.IsCalendar(name) {
			window = ""
		}
		for i := range callCases {
			use := fmt.Sprintf("%s-%d", name, i)
			uses = append(uses, use)
			fmt.Fprintf(&file, "  - {name: %[1]s, when: {use: %[1]s}, max: 1000%[2]s, "+
				"algorithm: %[3]s, holds: 10m}\n", use, window, name)
		}
	}
	path := filepath.Join(t.TempDir(), "limits.yaml")
	apitest.WriteFile(t, path, file.String())
	url, log, _ := start(t, "--config="+path, "--grpc-addr=127.0.0.1:0")
	conn := dialEnvoy(t, log)
	for i, use := range uses {
		c := callCases[i%len(callCases)]
		t.Run(use+" "+c.name, func(t *testing.T) {
			c.send(t, url, conn, use)
			answer := postOK(t, url+"/v1/peek", fmt.Sprintf(`{"descriptor":{"use":%q},"n":0}`, use))
			want := map[string]int64{use: 1000 - c.units, "calls": 20 - c.calls}
			for _, l := range answer.Limits {
				// A bucket has refilled a little meanwhile.
				if left := want[l.Name]; l.Remaining != left && l.Remaining != left+1 {
					t.Errorf("%d of %s are left, want %d", l.Remaining, l.Name, left)
				}
			}
			if len(answer.Limits) != 2 {
				t.Errorf("%+v", answer)
			}
		})
	}
}

type callsAnswer struct {
	ID      string
	Allowed bool
	Limits  []struct {
		Name      string
		Remaining int64
	}
}

func postOK(t *testing.T, url, body string) (answer callsAnswer) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent {
		return answer
	}
	err = json.NewDecoder(res.Body).Decode(&answer)
	if err != nil || res.StatusCode != 200 || !answer.Allowed && !strings.HasSuffix(url, "renew") {
		t.Fatalf("%s: %d %+v %v", url, res.StatusCode, answer, err)
	}
	return answer
}

func postCall(
	path, body string,
) func(t *testing.T, url string, conn *grpc.ClientConn, use string) {
	return func(t *testing.T, url string, _ *grpc.ClientConn, use string) {
		t.Helper()
		postOK(t, url+path, fmt.Sprintf("{"+body+"}", use))
	}
}

func decideCall(body string) func(t *testing.T, url string, conn *grpc.ClientConn, use string) {
	return postCall("/v1/decide", body)
}

func settleCall(used string) func(t *testing.T, url string, conn *grpc.ClientConn, use string) {
	return func(t *testing.T, url string, _ *grpc.ClientConn, use string) {
		t.Helper()
		id := postOK(t, url+"/v1/decide", fmt.Sprintf(
			`{"descriptor":{"use":%q},"n":400,"hold_ms":0}`, use)).ID
		postOK(t, url+"/v1/settle", fmt.Sprintf(`{"id":%q%s}`, id, used))
	}
}

func renewCall(t *testing.T, url string, _ *grpc.ClientConn, use string) {
	t.Helper()
	id := postOK(t, url+"/v1/decide", fmt.Sprintf(
		`{"descriptor":{"use":%q},"n":400,"hold_ms":0}`, use)).ID
	postOK(t, url+"/v1/renew", fmt.Sprintf(`{"id":%q,"total":500}`, id))
}

func reserveCall(t *testing.T, _ string, conn *grpc.ClientConn, use string) {
	t.Helper()
	resp, err := kuadrant.NewRateLimitServiceClient(conn).Reserve(t.Context(),
		&kuadrant.ReserveRequest{Domain: "d", Amount: 400,
			Descriptors: []*ratelimitv3.RateLimitDescriptor{{
				Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "use", Value: use}}}}})
	if err != nil || resp.GetReservationId() == "" {
		t.Fatalf("%v %v", resp, err)
	}
}
