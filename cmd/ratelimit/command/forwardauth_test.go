package command

import (
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestForwardAuthFlags: flags name entries, and trust no one with the whole Internet.
func TestForwardAuthFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--entry=tenant":             "NAME=SOURCE",
		"--entry==X-Tenant":          "NAME=SOURCE",
		"--entry=tenant=X Tenant":    "NAME=SOURCE",
		"--entry=client=X-Client":    "every request has the entry client already",
		"--entry=path=path":          "every request has the entry path already",
		"--entry=a=X-A,b=X-B,a=X-C":  "--entry=a=X-C: a is an entry of X-A already",
		"--trusted-proxy=10.0.0.0":   "--trusted-proxy",
		"--trusted-proxy=0.0.0.0/0":  "trusts everyone",
		"--trusted-proxy=::/0":       "trusts everyone",
		"--trusted-proxy=10.0.0.0/8": "no address",

		"--trusted-proxy=::ffff:0:0/96": "trusts everyone",
		"--trusted-proxy=::ffff:0:0/95": "trusts everyone",
	} {
		log := new(apitest.Log)
		run(t.Context(), []string{"serve", args, "--addr=no address"}, log, log)
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s: %s, want %q", args, log, want)
		}
	}
}
