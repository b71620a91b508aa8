package daemon

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// halfClosed sends a request over TCP, closes its half of the connection and returns the answer.
func halfClosed(addr, method, path, body string) (int, string, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\n"+
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
	token := func(path, body string) string {
		status, answer := post(t, url+path, body)
		_, rest, _ := strings.Cut(answer, `"token":"`)
		text, _, ok := strings.Cut(rest, `"`)
		if status != http.StatusOK || !ok {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
		return text
	}
	reserve := func(key string) string {
		return token("/v1/reserve", `{"claims":[{"limit":"tokens","key":"`+key+`"}]}`)
	}
	for _, tt := range []struct {
		path   string
		body   func(key string) string
		status int
		answer string // that is in the body
	}{
		{"/v1/take", func(key string) string { return `{"key":"` + key + `"}` }, 200, `"limits":[`},
		{"/v1/peek", func(key string) string { return `{"key":"` + key + `"}` }, 200, `"limits":[`},
		{"/v1/reset", func(key string) string { return `{"key":"` + key + `"}` }, 204, ""},
		{"/v1/take-all", claimOn("tokens"), 200, `"limits":[`},
		{"/v1/peek-all", claimOn("tokens"), 200, `"limits":[`},
		{"/v1/reserve", claimOn("tokens"), 200, `"token":"h.`},
		{"/v1/extend", func(key string) string {
			return `{"token":"` + reserve(key) + `","n":[1]}`
		}, 200, `"token":"h.`},
		{"/v1/commit", func(key string) string {
			return `{"token":"` + reserve(key) + `","actual":[2]}`
		}, 204, ""},
		{"/v1/cancel", func(key string) string { return `{"token":"` + reserve(key) + `"}` }, 204,
			""},
		{"/v1/acquire", targetOn("calls", ""), 200, `"token":"h.`},
		{"/v1/acquire", targetOn("calls", `,"wait_ms":5000`), 200, `"token":"h.`},
		{"/v1/release", func(key string) string {
			return `{"token":"` + token("/v1/acquire", targetOn("calls", "")(key)) + `"}`
		}, 204, ""},
		{"/v1/force", targetOn("tokens", `,"n":1`), 200, `"name":"tokens"`},
		{"/v1/block", targetOn("blocked", `,"for_ms":1000`), 200, `"name":"blocked"`},
		{"/v1/unblock", targetOn("blocked", ""), 204, ""},
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

func claimOn(limit string) func(key string) string {
	return func(key string) string {
		return `{"claims":[{"limit":"` + limit + `","key":"` + key + `"}]}`
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
