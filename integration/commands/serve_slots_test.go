package commands

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestServeSlots: on a cluster, limits whose keys are in several slots are decided one by one, and
// the log says so at the start and a metric counts it. With a tag that the keys share they are
// decided together. Both is so with hashed keys too.
func TestServeSlots(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	const limits = `
limits:
  - {name: users, key: [tenant, user], max: 10/1h, holds: 1m}
  - {name: tenants, key: [tenant], max: 2/1h, holds: 1m}
`
	if err := os.WriteFile(file, []byte(limits), 0o644); err != nil {
		t.Fatal(err)
	}
	store := "redis+cluster://" +
		strings.Join(servers.StartCluster(t, servers.Newest()).Addrs(), ",") + "?timeout=5s"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the secret of keys of these tests"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		store    string
		secret   string
		oneByOne bool
	}{
		{store + "&prefix=apart:", "", true},
		{store + "&prefix=together:&tag=/", "", false},
		{store + "&prefix=apart-hashed:", secret, true},
		{store + "&prefix=together-hashed:&tag=%2F", secret, false},
	} {
		d := daemon.Start(t, daemon.Build(t), "--config="+file, "--store="+tt.store,
			"--on-failure=closed", "--key-secret-file="+tt.secret)
		const body = `{"descriptor":{"tenant":"acme","user":%q}}`
		for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
			status, answer, _ := d.PostJSON(t, "/v1/decide", fmt.Sprintf(body, "bob"))
			if status != want {
				t.Errorf("one by one %t, request %d: %d %s", tt.oneByOne, i, status, answer)
			}
		}
		// The refusal has charged no limit.
		_, answer, _ := d.PostJSON(t, "/v1/peek", fmt.Sprintf(body, "bob"))
		if !strings.Contains(answer, `"name":"users","window_ms":3600000,"allowed":true`) ||
			!strings.Contains(answer, `"remaining":8`) {
			t.Errorf("one by one %t: %s", tt.oneByOne, answer)
		}
		status, answer, _ := d.PostJSON(t, "/v1/decide",
			`{"descriptor":{"tenant":"other","user":"eve"},"hold_ms":0}`)
		refused := status == http.StatusUnprocessableEntity &&
			strings.Contains(answer, "#claims-not-together")
		if refused != tt.oneByOne || !refused && status != http.StatusOK {
			t.Errorf("one by one %t: a hold gets %d %s", tt.oneByOne, status, answer)
		}
		_, metrics := d.Get(t, "/metrics")
		calls := map[bool]int{true: 4}[tt.oneByOne] // without the hold
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^ratelimit_one_by_one_total\S* %d$`, calls)).
			MatchString(metrics) {
			t.Errorf("one by one %t: not %d calls: %s", tt.oneByOne, calls, metrics)
		}
		if said := strings.Contains(d.Logged(), "decided one by one"); said != tt.oneByOne {
			t.Errorf("one by one %t: the log says so %t: %s", tt.oneByOne, said, d.Logged())
		}
	}
}
