package command

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
	"github.com/truewindow/ratelimit/driver"
)

// chargedLimits has a limit of each algorithm that records units, with the longest wait of a key
// that its documentation states.
var chargedLimits = []struct {
	name, text string
	most       time.Duration
}{
	{"log", "max: 1000/1m", time.Minute},
	{"bucket", "max: 1000/1m, algorithm: bucket", time.Hour},
	{"bucket-1d", "max: 1000/1d, algorithm: bucket", 24 * time.Hour},
	{"bucket-debt", "max: 1000/1m, algorithm: bucket, debt: 1m", time.Minute},
	{"bucket-long", "max: 1000/1m, algorithm: bucket, debt: 2d", 48 * time.Hour},
	{"fixed", "max: 1000/1h, algorithm: fixed", time.Hour},
	{"counter", "max: 1000/1h, algorithm: counter", 2 * time.Hour}, // two windows
	{"month", "max: 1000, algorithm: month", 31 * 24 * time.Hour},
}

// keyCall is a call for n units of a key.
func keyCall(key string, n uint64) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "any", Descriptors: []*limitv3.RateLimitDescriptor{{
		HitsAddend: wrapperspb.UInt64(n),
		Entries:    []*limitv3.RateLimitDescriptor_Entry{{Key: "key", Value: key}}}}}
}

// A charger charges units of a key under the limit whose entry "of" is of.
type charger func(t *testing.T, of, key string, n uint64) (charged bool)

// TestChargesAreBounded: whatever a request charges, with or without a token, under each algorithm,
// a key waits no longer than the algorithm's documentation says.
func TestChargesAreBounded(t *testing.T) {
	var file strings.Builder
	file.WriteString("limits:\n")
	for _, l := range chargedLimits {
		for _, always := range []string{"", ", charge: always"} {
			of := l.name + strings.TrimPrefix(always, ", charge: ")
			fmt.Fprintf(&file, "  - {name: %s, when: {of: %s}, key: [key], holds: 1m, %s%s}\n",
				of, of, l.text, always)
		}
	}
	url, log, _ := start(t, "--config="+apitest.ConfigFile(t, file.String()),
		"--grpc-addr=127.0.0.1:0")
	conn := dialEnvoy(t, log)
	reports := kuadrant.NewRateLimitServiceClient(conn)
	envoys := rls.NewRateLimitServiceClient(conn)
	http := func(t *testing.T, path, body string) (int, string) {
		t.Helper()
		return post(t, url+path, body)
	}
	call := func(of, key string, n uint64) *rls.RateLimitRequest {
		req := keyCall(key, n)
		req.Descriptors[0].Entries = append(req.Descriptors[0].Entries,
			&limitv3.RateLimitDescriptor_Entry{Key: "of", Value: of})
		return req
	}
	descriptors := func(of, key string) []*limitv3.RateLimitDescriptor {
		return call(of, key, 1).Descriptors
	}
	for name, charge := range map[string]charger{
		"settle": func(t *testing.T, of, key string, n uint64) bool {
			_, text := http(t, "/v1/decide",
				fmt.Sprintf(`{"descriptor":{"of":%q,"key":%q},"hold_ms":0}`, of, key))
			var held struct{ ID string }
			if err := json.Unmarshal([]byte(text), &held); err != nil || held.ID == "" {
				return false // what was charged before refuses it
			}
			status, _ := http(t, "/v1/settle", fmt.Sprintf(`{"id":%q,"used":%d}`, held.ID, n))
			return status == 204
		},
		"force": func(t *testing.T, of, key string, n uint64) bool {
			status, _ := http(t, "/v1/force",
				fmt.Sprintf(`{"limit":%q,"key":%q,"n":%d}`, of, key, n))
			return status == 200
		},
		"decide": func(t *testing.T, of, key string, n uint64) bool {
			status, _ := http(t, "/v1/decide", fmt.Sprintf(
				`{"descriptor":{"of":%q,"key":%q},"n":%d}`, of+"always", key, n))
			return status == 429
		},
		"Envoy": func(t *testing.T, of, key string, n uint64) bool {
			_, err := envoys.ShouldRateLimit(t.Context(), call(of+"always", key, n))
			return err == nil
		},
		"JSON": func(t *testing.T, of, key string, n uint64) bool {
			status, _ := http(t, "/json", fmt.Sprintf(`{"domain":"any","descriptors":[`+
				`{"hitsAddend":"%d","entries":[{"key":"of","value":%q},`+
				`{"key":"key","value":%q}]}]}`, n, of+"always", key))
			return status == 429
		},
		"Report": func(t *testing.T, of, key string, n uint64) bool {
			_, err := reports.Report(t.Context(), call(of, key, n))
			return err == nil
		},
		"Commit": func(t *testing.T, of, key string, n uint64) bool {
			held, err := reports.Reserve(t.Context(), &kuadrant.ReserveRequest{
				Domain: "any", Descriptors: descriptors(of, key), Amount: 1})
			if err != nil || held.ReservationId == "" {
				return false
			}
			done, err := reports.Commit(t.Context(), &kuadrant.CommitRequest{Domain: "any",
				Descriptors: descriptors(of, key), ReservationId: held.ReservationId,
				ActualAmount: n})
			return err == nil && done.ReservationReleased
		},
		"Commit without an id": func(t *testing.T, of, key string, n uint64) bool {
			_, err := reports.Commit(t.Context(), &kuadrant.CommitRequest{
				Domain: "any", Descriptors: descriptors(of, key), ActualAmount: n})
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, l := range chargedLimits {
				for _, n := range []uint64{1 << 40, 1<<63 - 1, 1_000_000} { // the last: thousandths
					key, charged := fmt.Sprintf("%s-%d", name, n), 0
					for range 3 {
						if charge(t, l.name, key, n) {
							charged++
						}
					}
					if charged == 0 {
						if n <= uint64(driver.MaxUnits) {
							t.Errorf("%s: %d units are not charged", l.name, n)
						}
						continue
					}
					of := l.name
					if slices.Contains([]string{"decide", "Envoy", "JSON"}, name) {
						of += "always"
					}
					longest := time.Duration(0)
					for _, units := range []int{1, 1000} {
						status, text := http(t, "/v1/peek", fmt.Sprintf(
							`{"descriptor":{"of":%q,"key":%q},"n":%d}`, of, key, units))
						var state struct {
							RetryAfterMS int64 `json:"retry_after_ms"`
						}
						err := json.Unmarshal([]byte(text), &state)
						if err != nil || status != 200 {
							t.Fatal(status, text, err)
						}
						longest = max(longest, time.Duration(state.RetryAfterMS)*time.Millisecond)
					}
					if longest == 0 || longest > l.most {
						t.Errorf("%s: after %d units the key waits %v, want %v at most", l.name, n,
							longest, l.most)
					}
				}
			}
		})
	}
}
