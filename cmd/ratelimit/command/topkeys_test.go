package command

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestTopKeysHashed: without --top-keys-plain no key is shown, and without --top-keys nothing is.
func TestTopKeysHashed(t *testing.T) {
	url, log, _ := start(t, "--limit=all=1/1h", "--in-flight=calls=1/1h", "--top-keys=10")
	for range 3 {
		post(t, url+"/v1/decide", `{"key":"secret-key"}`)
		post(t, url+"/v1/decide", `{"hold_ms":0,"claims":[{"limit":"calls","key":"secret-key"}]}`)
	}
	status, body := get(t, url+"/v1/top-keys")
	var list struct {
		Limits []struct {
			Name string
			Keys []struct {
				Hash string `json:"key_hash"`
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK {
		t.Fatalf("%d %v: %s", status, err, body)
	}
	var names []string
	hashes := map[string]bool{}
	for _, limit := range list.Limits {
		names = append(names, limit.Name)
		for _, k := range limit.Keys {
			hashes[k.Hash] = len(k.Hash) == 32
		}
	}
	if !slices.Equal(names, []string{"all", "calls"}) || len(hashes) != 1 || hashes[""] ||
		strings.Contains(body+log.String(), apitest.Secret) {
		t.Errorf("%s", body)
	}
	apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
		`ratelimit_decisions_total limit="all" outcome="refused"`:               "2",
		`http_server_request_duration_seconds_count route="/v1/top-keys" "200"`: "1",
	})
	if status, body := post(t, url+"/v1/top-keys", "{}"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d %s", status, body)
	}
	url, _, _ = start(t)
	if status, body := get(t, url+"/v1/top-keys"); status != http.StatusNotFound ||
		!strings.Contains(body, "--top-keys=N") {
		t.Errorf("without --top-keys: %d %s", status, body)
	}
}
