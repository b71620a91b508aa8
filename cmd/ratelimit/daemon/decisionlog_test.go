package daemon

import (
	"bytes"
	"strings"
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// TestDecisionLogShares: without the flag nothing is logged, a share logs some, keys stay hashed
// beside a list that shows them.
func TestDecisionLogShares(t *testing.T) {
	const requests = 1000
	for _, tt := range []struct {
		args        []string
		least, most int
	}{
		{nil, 0, 0},
		{[]string{"--log-decisions=0.5", "--top-keys=9", "--top-keys-plain"}, 300, 700},
	} {
		c := parseServe(t, append([]string{"serve", "--limit=all=2/1h"}, tt.args...))
		var log bytes.Buffer
		c.LogFormat = "json"
		top, err := httpapi.NewTopKeys(c.TopKeys, c.TopKeysPlain, nil)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := newHash(top)
		if err != nil {
			t.Fatal(err)
		}
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		d := c.newDecider(store, nil, c.logDecisions(hash, c.logger(&log)))
		if _, err := c.newLimits(t.Context(), d, nil, apitest.Discard); err != nil {
			t.Fatal(err)
		}
		for range requests {
			if _, err := d.Decide(t.Context(), []decision.Request{{N: 1,
				Descriptor: rules.Descriptor{{Name: "key", Value: apitest.Secret}}}},
				decision.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(log.String(), `"msg":"decision"`); n < tt.least || n > tt.most {
			t.Errorf("%v: %d lines", tt.args, n)
		}
		if strings.Contains(log.String(), apitest.Secret) {
			t.Errorf("%v: the log has the key: %s", tt.args, &log)
		}
	}
}
