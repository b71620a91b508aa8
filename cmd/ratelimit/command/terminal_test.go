package command

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// unprintable has characters that a terminal interprets, or that hide others: escape sequences with
// 7 and 8 bits, a bell, a new line, a change of direction.
const unprintable = "x\x1b[2J\u009b31m\x07\r\nadmitted\tyes\u202ey\u200b"

// checkPrintable reports characters of unprintable in what was printed.
func checkPrintable(t *testing.T, what, printed string) {
	t.Helper()
	for line := range strings.Lines(printed) {
		for _, r := range strings.TrimSuffix(line, "\n") {
			if !strconv.IsPrint(r) {
				t.Errorf("%s prints %q in %q", what, r, line)
			}
		}
		if strings.HasPrefix(line, "admitted\t") || strings.HasPrefix(line, "admittedyes") {
			t.Errorf("%s prints a line of someone else: %q", what, line)
		}
	}
}

// TestHostileService: no command prints characters of a service that a terminal interprets.
func TestHostileService(t *testing.T) {
	limit := map[string]any{"name": unprintable, "limit": 1, "remaining": 1, "retry_after_ms": 1}
	applied := map[string]any{"limit": unprintable, "rate": unprintable, "why": unprintable,
		"key": unprintable, "key_hash": unprintable, "state": map[string]any{"limit": 1}}
	all, err := json.Marshal(map[string]any{
		"id": unprintable, "allowed": true, "limits": []any{limit},
		"applies": []any{applied}, "others": []any{map[string]any{
			"limit": unprintable, "because": unprintable}},
		"state": []any{map[string]any{"name": unprintable, "value": unprintable, "bad": true}},
		"top": []any{map[string]any{"limit": unprintable,
			"keys": []any{map[string]any{"name": unprintable, "count": 1}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	problems, err := json.Marshal(map[string]any{"title": unprintable, "detail": unprintable})
	if err != nil {
		t.Fatal(err)
	}
	page, err := json.Marshal(map[string]any{
		"limits": []any{map[string]any{"name": unprintable, "rate": unprintable}},
		"state":  []any{map[string]any{"name": unprintable, "value": unprintable, "bad": true}},
		"top": []any{map[string]any{"limit": unprintable,
			"keys": []any{map[string]any{"name": unprintable, "count": 1}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusOK
	var answer []byte
	service := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			body := answer
			if status == http.StatusOK && strings.HasPrefix(r.URL.Path, "/dashboard/") {
				body = page
			}
			_, _ = w.Write(body)
		}))
	defer service.Close()
	for _, args := range [][]string{
		{"take", "tenant=acme"}, {"peek", "tenant=acme"}, {"settle", "id"},
		{"block", "limit", "key", "1m"}, {"reset", "key"}, {"top", "--once"},
		{"explain", service.URL, "tenant=acme"},
	} {
		if args[0] != "explain" {
			args = append(args, "--url="+service.URL)
		}
		for _, tt := range []struct {
			status int
			answer []byte
			code   int
		}{
			{http.StatusOK, all, exitOK}, {http.StatusForbidden, problems, exitError},
			{http.StatusForbidden, []byte(unprintable), exitError},
			{http.StatusOK, []byte(unprintable), exitError},
		} {
			if status, answer = tt.status, tt.answer; args[0] == "top" && tt.status == 200 {
				tt.code = exitOK
			}
			code, stdout, stderr := command(t, args...)
			if code != tt.code {
				t.Errorf("%s: code %d: %s", args, code, stderr)
			}
			checkPrintable(t, args[0], stdout+stderr)
		}
	}
}

// TestHostileText: no command prints such characters of its files and arguments.
func TestHostileText(t *testing.T) {
	quoted := strconv.Quote(unprintable)
	file := apitest.ConfigFile(t, "limits:\n- {name: "+quoted+", key: [tenant], max: 1/1m}\n"+
		"- {name: other, when: {"+quoted+": "+quoted+"}, key: [tenant], max: 1/1m}\n")
	bad := apitest.ConfigFile(t, "limits:\n- {name: a, "+quoted+": 1, max: "+quoted+"}\n")
	envoy := apitest.ConfigFile(t,
		"domain: "+quoted+"\ndescriptors:\n- {key: "+quoted+", value: "+quoted+
			",\n    rate_limit: {unit: minute, requests_per_unit: 5}}\n")
	for _, args := range [][]string{
		{"explain", file, "tenant=" + unprintable, unprintable + "=" + unprintable},
		{"explain", file, unprintable}, {"explain", bad, "tenant=a"},
		{"explain", envoy, "tenant=a"}, {"explain", envoy, unprintable + "=" + unprintable,
			"--domain=" + unprintable},
		{"explain", unprintable, "tenant=a"},
		{"validate", file}, {"validate", bad}, {"validate", envoy}, {"validate", unprintable},
		{"take", "--store=memory", "--config=" + file, "tenant=" + unprintable},
		{"take", "--store=memory", "--limit=1/1m", "--key=" + unprintable},
		{"take", "--store=" + unprintable, "--limit=1/1m", "--key=a"},
		{"take", "--url=" + unprintable, "--key=a"}, {"take", unprintable},
		{"peek", "--store=memory", "--limit=" + unprintable + "=1/1m", "--key=a"},
		{unprintable}, {"serve", "--config=" + bad}, {"serve", "--config=" + unprintable},
		{"serve", "--host=" + unprintable},
	} {
		_, stdout, stderr := command(t, args...)
		if stdout+stderr == "" {
			t.Errorf("%q prints nothing", args)
		}
		checkPrintable(t, fmt.Sprintf("%q", args), stdout+stderr)
	}
}
