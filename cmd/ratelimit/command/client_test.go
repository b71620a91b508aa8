package command

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// command runs a command and returns its exit code and what it prints.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, wrong bytes.Buffer
	code = run(t.Context(), args, &out, &wrong)
	return code, out.String(), wrong.String()
}

// TestClientCommands runs the commands against a service.
func TestClientCommands(t *testing.T) {
	url, _, _ := start(t, "--config="+apitest.ConfigFile(t, `
limits:
  - {name: units, key: [tenant], max: 2/1h, holds: 1m}
  - {name: tried, key: [tenant], max: 1/1h, mode: shadow}
  - {name: banned, when: {tenant: evil}, max: 0}
  - {name: blocked, key: [user], max: 24h, algorithm: block}
`))
	token := apitest.TokenFile(t, apitest.Token+"\n")
	for _, tt := range []struct {
		args string
		code int
		want []string // in stdout, or in stderr after an error
	}{
		{"take tenant=acme", exitOK, []string{"admitted\n", "units", "yes", "1", "tried (shadow)"}},
		{"take --units=2 tenant=acme", exitRefused, []string{"refused\n", "59m", "no"}},
		{"peek --of-limit=units --key=acme", exitOK,
			[]string{"admitted\n", "units  yes     1     2"}},
		{"peek --of-limit=units --units=2 --key=acme", exitOK, []string{"refused\n"}},
		{"peek tenant=acme", exitOK, []string{"admitted\n", "units", "1", "tried (shadow)"}},
		{"peek --units=2 tenant=acme", exitOK, []string{"refused\n"}},
		{"peek tenant=evil", exitOK, []string{"banned", "never"}},
		{"take tenant=evil", exitRefused,
			[]string{"banned          no            0   never", "units           yes           2"}},
		{"take color=red", exitOK, []string{"admitted\nNo limit applies.\n"}},
		{"take --hold=1m tenant=acme", exitOK, []string{"admitted, held as "}},
		{"reset --of-limit=units acme", exitOK, []string{"done\n"}},
		{"take user=bob", exitOK, []string{"blocked  yes     not blocked  "}},
		{"explain " + url + " user=bob", exitOK, []string{"blocked  not blocked      0s"}},
		{"block blocked bob 15m", exitOK, []string{"blocked for 15m0s\n"}},
		{"explain " + url + " user=bob", exitOK, []string{"blocked  blocked      14m"}},
		{"peek --of-limit=blocked --key=bob", exitOK, []string{"refused\n", "14m"}},
		{"explain " + url + " tenant=acme", exitOK, []string{"units           2/1h0m0s  max",
			"units  2     2   0s", "banned          tenant is acme, not evil"}},
		{"explain " + url + "/none tenant=acme", exitError, []string{"status 404"}},
		{"take user=bob", exitRefused, []string{"blocked  no      blocked      14m"}},
		{"block blocked bob 48h", exitError, []string{"status 422", "at most 24h0m0s"}},
		{"block blocked bob 1ms", exitOK, []string{"blocked for 14m"}},
		{"block blocked bob 1ns", exitOK, []string{"blocked for 14m"}},
		{"block blocked bob 0s", exitError, []string{"status 400"}},
		{"settle no-id", exitError, []string{"status 422"}},
		{"reset --token-file=" + apitest.TokenFile(t, "another-token-of-the-tests") + " acme",
			exitError,
			[]string{"status 401"}},
		{"take", exitUsage, []string{"either entries"}},
		{"take tenant", exitUsage, []string{"name=value"}},
		{"peek", exitUsage, []string{"either entries"}},
		{"peek --of-limit=units tenant=acme", exitUsage, []string{"--of-limit needs --key"}},
		{"peek --url=http://127.0.0.1:1 tenant=acme", exitError, []string{"refused"}},
	} {
		args := strings.Fields(tt.args)
		if !strings.Contains(tt.args, "--url") && args[0] != "explain" {
			args = append(args, "--url="+url)
		}
		if !strings.Contains(tt.args, "--token-file") {
			args = append(args, "--token-file="+token)
		}
		code, stdout, stderr := command(t, args...)
		text := stdout
		if code == exitError || code == exitUsage {
			text = stderr
		}
		for _, want := range tt.want {
			if code != tt.code || !strings.Contains(text, want) {
				t.Errorf("%s: exit code %d, want %d with %q: %s%s",
					tt.args, code, tt.code, want, stdout, stderr)
			}
		}
	}
	_, stdout, _ := command(t, "take", "--json", "--hold=1m", "tenant=other", "--url="+url)
	var answer struct{ ID string }
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || answer.ID == "" {
		t.Fatalf("%v: %s", err, stdout)
	}
	for _, want := range []int{exitOK, exitError} { // once
		code, _, stderr := command(t, "settle", "--used=1", answer.ID, "--url="+url)
		if code != want {
			t.Errorf("settle: exit code %d, want %d: %s", code, want, stderr)
		}
	}
}

// TestClientOnStore decides without a service.
func TestClientOnStore(t *testing.T) {
	file := apitest.ConfigFile(t, "limits:\n  - {name: units, key: [tenant], max: 2/1h}\n")
	for _, tt := range []struct {
		args string
		code int
	}{
		{"take --store=memory --limit=2/1h --key=user:42", exitOK},
		{"take --store=memory --limit=2/1h --key=user:42 --units=3", exitError}, // never
		{"take --store=memory --config=" + file + " tenant=acme", exitOK},
		{"take --store=memory --config=" + file + " --units=3 tenant=acme", exitRefused},
		{"reset --store=memory --limit=2/1h user:42", exitOK},
		{"take --store=unknown: --key=user:42", exitError},
		{"take --store=memory --limit=2/1h --key-secret-file=missing --key=user:42", exitError},
		{"take --store=memory --config=missing tenant=acme", exitError},
	} {
		if code, stdout, stderr := command(t, strings.Fields(tt.args)...); code != tt.code {
			t.Errorf("%s: exit code %d, want %d: %s%s", tt.args, code, tt.code, stdout, stderr)
		}
	}
}
