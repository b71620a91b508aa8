package command

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// halfClosed sends a request over TCP, closes its half of the connection and returns the answer.
func halfClosed(addr, method, path, body string) (int, string, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\n"+
		"Authorization: Bearer "+apitest.Token+"\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, len(body), body); err != nil {
		return 0, "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, string(answer), err
}

// checkHalfClosed makes 60 requests to each path of a daemon with the flags of budgetFlags, from
// clients that close their half of the connection.
func checkHalfClosed(t *testing.T, url string) {
	t.Helper()
	const requests = 60
	addr := strings.TrimPrefix(url, "http://")
	hold := func(key string) string {
		status, answer := post(t, url+"/v1/decide", claimOn("tokens", `"hold_ms":0,`)(key))
		_, rest, _ := strings.Cut(answer, `"id":"`)
		text, _, ok := strings.Cut(rest, `"`)
		if status != http.StatusOK || !ok {
			t.Fatalf("%d %s", status, answer)
		}
		return text
	}
	for _, tt := range []struct {
		path   string
		body   func(key string) string
		status int
		answer string // that is in the body
	}{
		{"/v1/decide", func(key string) string { return `{"key":"` + key + `"}` }, 200,
			`"limits":[`},
		{"/v1/decide", claimOn("tokens", ""), 200, `"limits":[`},
		{"/v1/decide", claimOn("tokens", `"hold_ms":0,`), 200, `{"id":"`},
		{"/v1/decide", claimOn("calls", `"hold_ms":0,"wait_ms":5000,`), 200, `{"id":"`},
		{"/v1/peek", claimOn("tokens", ""), 200, `"limits":[`},
		{"/v1/settle", func(key string) string { return `{"id":"` + hold(key) + `","used":2}` },
			204, ""},
		{"/v1/renew", func(key string) string { return `{"id":"` + hold(key) + `","total":2}` },
			200, `{"id":"`},
		{"/v1/force", targetOn("tokens", `,"n":1`), 200, `"name":"tokens"`},
		{"/v1/block", targetOn("blocked", `,"for_ms":1000`), 200, `"name":"blocked"`},
		{"/v1/reset", targetOn("blocked", ""), 204, ""},
		{"/v1/top-keys", nil, 200, `"limits":[`},
		{"/metrics", nil, 200, "go_goroutines"},
		{"/healthz", nil, 200, "ok"},
	} {
		var group sync.WaitGroup
		for i := range requests {
			method, body := http.MethodGet, ""
			if tt.body != nil {
				method, body = http.MethodPost, tt.body(fmt.Sprintf("%s%d", tt.path, i))
			}
			group.Go(func() {
				status, answer, err := halfClosed(addr, method, tt.path, body)
				if err != nil || status != tt.status || !strings.Contains(answer, tt.answer) {
					t.Errorf("%s: %d %q (%v), want %d", tt.path, status, answer, err, tt.status)
				}
			})
		}
		group.Wait()
	}
}

func claimOn(limit, more string) func(key string) string {
	return func(key string) string {
		return `{` + more + `"claims":[{"limit":"` + limit + `","key":"` + key + `"}]}`
	}
}

func targetOn(limit, more string) func(key string) string {
	return func(key string) string {
		return `{"limit":"` + limit + `","key":"` + key + `"` + more + `}`
	}
}

// TestHalfClosed: a client that has sent its request and closed its half of the connection still
// reads, and gets a whole answer.
func TestHalfClosed(t *testing.T) {
	url, log, _ := start(t, "--limit=tokens=100/1m", "--in-flight=calls=2/10m",
		"--block=blocked=1h", "--top-keys=5")
	checkHalfClosed(t, url)
	if strings.Contains(log.String(), "undecided") {
		t.Errorf("log: %s", log)
	}
}
