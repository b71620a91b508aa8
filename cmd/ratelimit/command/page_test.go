package command

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

const pageLimits = `
limits:
  - {name: units, when: {tenant: "*"}, key: [tenant], max: 2/1h, warn: 50%,
     by: {entry: plan, pro: 90/1h}}
  - {name: trial, when: {tenant: "*"}, key: [tenant], max: 1/1h, mode: shadow}
  - {name: blocked, when: {tenant: "*"}, key: [tenant], max: 24h, algorithm: block}
`

// startPage starts a service with pageLimits, and decides four requests of a tenant.
func startPage(t *testing.T, args ...string) (url string, file string, stop func() int) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "limits.yaml")
	apitest.WriteFile(t, file, pageLimits)
	url, _, stop = start(t, append([]string{"--config=" + file, "--top-keys=10"}, args...)...)
	for range 4 {
		post(t, url+"/v1/decide", `{"descriptor":{"tenant":"acme"}}`)
	}
	return url, file, stop
}

// visit sends a request as a browser does, with a token as the password if there is one.
func visit(t *testing.T, method, url, token string, form url.Values) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if token != "" {
		r.SetBasicAuth("me", token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// TestPage: the page of a service has what its limits decided, also in shadow mode, and its state.
func TestPage(t *testing.T) {
	base, file, _ := startPage(t)
	apitest.WriteFile(t, file, "limits: [{name: broken}]\n")
	type counts struct{ Admitted, Refused, Stricter, Warned int64 }
	var seen struct {
		Limits []struct {
			Name    string
			Quarter counts
		}
		State []struct {
			Name string
			Bad  bool
		}
	}
	got := make(map[string]counts)
	bad := func() (names []string) {
		for _, line := range seen.State {
			if line.Bad {
				names = append(names, line.Name)
			}
		}
		return names
	}
	const patience = 10 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Second / 4) {
		_, text := visit(t, http.MethodGet, base+"/dashboard/snapshot", "", nil)
		if err := json.Unmarshal([]byte(text), &seen); err != nil {
			t.Fatal(err)
		}
		for _, l := range seen.Limits {
			got[l.Name] = l.Quarter
		}
		if got["units"].Refused > 0 && len(bad()) > 0 {
			break
		}
	}
	want := map[string]counts{"units": {Admitted: 2, Refused: 2, Warned: 4},
		"trial": {Admitted: 1, Refused: 1, Stricter: 1}}
	for name, want := range want {
		if got[name] != want {
			t.Errorf("%s: %+v, want %+v", name, got[name], want)
		}
	}
	if names := bad(); len(names) != 1 || names[0] != "last load" {
		t.Errorf("the page says that %q are bad", names)
	}
	res, text := visit(t, http.MethodGet, base+"/dashboard", "", nil)
	if res.Request.URL.Path != "/dashboard/" ||
		!strings.Contains(text, "2 an hour for each tenant, 90 an hour by plan=pro") ||
		!strings.Contains(text, "limits.yaml line 1 is wrong: ") ||
		!strings.Contains(text, " stay in force. Correct the file: ") {
		t.Errorf("%v: %s", res.Request.URL, text)
	}
}

var pageToken = regexp.MustCompile(`name="token" value="([^"]+)"`)

// TestPageOfLimit: the page of a limit has its rule as the file has it, and the line of a limit of
// all calls together.
func TestPageOfLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	apitest.WriteFile(t, file, `limits:
  - {name: pairs, when: {tenant: "*"}, key: [tenant, model], max: 7/1h, mode: shadow,
     holds: 1m}
  - {name: all, max: 60/1m, algorithm: bucket}
`)
	base, _, _ := start(t, "--config="+file)
	wants := func(path string, texts ...string) {
		t.Helper()
		status, body := get(t, base+"/dashboard/"+path)
		for _, text := range texts {
			if status != http.StatusOK || !strings.Contains(body, text) {
				t.Errorf("%s lacks %q: %s", path, text, body)
			}
		}
	}
	wants("", "/v1/decide", `-d &#39;{&#34;descriptor&#34;:{&#34;model&#34;:&#34;acme&#34;,`+
		`&#34;tenant&#34;:&#34;acme&#34;}}&#39;`)
	post(t, base+"/v1/decide", `{"descriptor":{"tenant":"acme","model":"m"}}`)
	line := func(name, value string) string {
		return "<dt>" + name + "</dt><dd>" + value + "</dd>"
	}
	wants("limit?name=pairs", "7 an hour for each tenant and model", line("when", "tenant=*"),
		line("key", "tenant, model"), line("algorithm", "log"), line("holds", "1m0s"),
		line("mode", "shadow: it refuses nothing"), "limits.yaml:2:")
	wants("limit?name=all", "60 a minute for all together", line("when", "any request"),
		line("key", "one for all"), line("algorithm", "bucket"), "limits.yaml:4:")
	if _, body := get(t, base+"/dashboard/limit?name=all"); strings.Contains(body, "7 an hour") {
		t.Errorf("the page of a limit has the rate of another one: %s", body)
	}
	const patience = 10 * time.Second
	for end := time.Now().Add(patience); ; { // until a second of calls has ended
		for range 5 {
			post(t, base+"/v1/decide", `{"descriptor":{"tenant":"acme","model":"m"}}`)
		}
		if _, body := get(t, base+"/dashboard/limit?name=all"); strings.Contains(body,
			"the limit, 1/s") {
			return
		} else if time.Now().After(end) {
			t.Fatalf("the chart has no line of the limit: %s", body)
		}
	}
}

// TestPageActions: entries find the limits that apply to them, and a browser may reset a key with
// the token that writes, and with no other.
func TestPageActions(t *testing.T) {
	const reader = "a-token-to-read-with"
	base, _, _ := startPage(t, "--read-token-file="+apitest.TokenFile(t, reader))
	res, _ := visit(t, http.MethodGet, base+"/dashboard/", "", nil)
	if res.StatusCode != http.StatusUnauthorized ||
		!strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	_, index := visit(t, http.MethodGet, base+"/dashboard/", reader, nil)
	token := pageToken.FindStringSubmatch(index)[1]
	entries := url.Values{"token": {token}, "q": {"tenant=acme"}}
	_, shown := visit(t, http.MethodPost, base+"/dashboard/key", reader, entries)
	for _, want := range []string{"2 of 2 used", "1 of 1 used", "Not blocked",
		"units refuses this key at 2 an hour for each tenant, if it has no other rate " +
			"(90 an hour by plan=pro): 2 of 2 used. The next unit is free in "} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page lacks %q: %s", want, shown)
		}
	}
	if strings.Contains(shown, "Reset") {
		t.Errorf("a reader is shown what only writers may do: %s", shown)
	}
	_, shown = visit(t, http.MethodPost, base+"/dashboard/key", apitest.Token, entries)
	form := url.Values{"token": {token}, "action": {"reset"}, "limit": {"units"},
		"confirmed": {"yes"}}
	for name, field := range map[string]*regexp.Regexp{
		"query": regexp.MustCompile(`name="query" value="([^"]+)"`),
		"key":   regexp.MustCompile(`value="units">\s*<input .* name="key" value="([^"]+)"`),
	} {
		form.Set(name, field.FindStringSubmatch(shown)[1])
	}
	decide := func() (int, string) {
		return post(t, base+"/v1/decide", `{"descriptor":{"tenant":"acme"}}`)
	}
	for _, tt := range []struct {
		path, token string
		want        int
	}{
		{"act", "", 401}, {"any/act", "", 401}, {"any%2Fact", "", 401}, {"%61ct", "", 401},
		{"act", reader, 403}, {"any/act", reader, 403}, {"any/../act", reader, 403},
		{"act", apitest.Token, 200},
	} {
		if status, body := decide(); status != http.StatusTooManyRequests ||
			!strings.Contains(body, `"allowed":false`) {
			t.Fatalf("before %s with %q: %d %s", tt.path, tt.token, status, body)
		}
		res, text := visit(t, http.MethodPost, base+"/dashboard/"+tt.path, tt.token, form)
		if res.StatusCode != tt.want {
			t.Errorf("%s with %q: %d, want %d: %s",
				tt.path, tt.token, res.StatusCode, tt.want, text)
		}
	}
	if status, body := decide(); status != http.StatusOK {
		t.Errorf("after the reset: %d %s", status, body)
	}
}

// TestPageOnAdminAddr: the page is where what reads is. An open page does not keep the service from
// stopping.
func TestPageOnAdminAddr(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin")
	base, _, stop := startPage(t, "--admin-addr=unix:"+socket)
	if res, _ := visit(t, http.MethodGet, base+"/dashboard/", "", nil); res.StatusCode != 404 {
		t.Errorf("on --addr: %d", res.StatusCode)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://admin/dashboard/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := bufio.NewScanner(res.Body)
	for events.Scan() && !strings.HasPrefix(events.Text(), "data:") {
	}
	if code := stop(); code != 0 {
		t.Errorf("it ended with code %d", code)
	}
	for events.Scan() {
	}
	if err := events.Err(); err != nil {
		t.Error(err)
	}
}

// TestTop: the command shows the limits that refuse most first, and the most refused keys.
func TestTop(t *testing.T) {
	const reader = "a-token-to-read-with"
	tokens := apitest.TokenFile(t, reader)
	base, _, _ := startPage(t, "--read-token-file="+tokens)
	args := []string{"top", "--once", "--url=" + base, "--token-file=" + tokens}
	var shown strings.Builder
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		shown.Reset()
		if code := run(t.Context(), args, &shown, &shown); code != 0 {
			t.Fatalf("code %d: %s", code, shown.String())
		}
		if strings.Contains(shown.String(), "REFUSED KEY") {
			break
		}
		time.Sleep(time.Second / 4)
	}
	want := regexp.MustCompile(`^LIMIT .*
units +2/1h0m0s +\d +\d +2 +2 +0
trial +1/1h0m0s +\d +\d +1 +1 +0

REFUSED KEY +LIMIT +REFUSALS +FOR
[0-9a-f]{32} +units +2 +0s
$`)
	if !want.MatchString(shown.String()) {
		t.Errorf("got %s", shown.String())
	}
	shown.Reset()
	if code := run(t.Context(), args[:3], io.Discard, &shown); code != exitError ||
		!strings.Contains(shown.String(), "status 401: This request needs") {
		t.Errorf("without a token: code %d: %s", code, shown.String())
	}
}
