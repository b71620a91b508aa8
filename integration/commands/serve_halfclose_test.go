package commands

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestServeHalfClosed: clients that have closed their half of the connection, while a server
// decides, get whole answers. The decisions take a round trip, so the daemon sees the end first.
func TestServeHalfClosed(t *testing.T) {
	const requests = 60
	bin := daemon.Build(t)
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		d := &deployment{name: image, addrs: []string{servers.Start(t, image).Addr}}
		for _, lib := range libraries {
			p := daemon.Start(t, bin, "--store="+d.url(lib.scheme, d.addrs), "--on-failure=closed",
				"--limit=tokens=1000/1h", "--in-flight=calls=1/1h", "--block=blocked=1h")
			for _, tt := range []struct {
				path, body string // with the key
				answer     string // that is in the body
			}{
				{"/v1/decide", `{"key":%q}`, `"limits":[`},
				{"/v1/decide", `{"claims":[{"limit":"tokens","key":%q}]}`, `"limits":[`},
				{"/v1/decide", `{"hold_ms":0,"claims":[{"limit":"tokens","key":%q}]}`, `{"id":"`},
				{"/v1/decide", `{"hold_ms":0,"wait_ms":2000,` +
					`"claims":[{"limit":"calls","key":%q}]}`, `{"id":"`},
				{"/v1/block", `{"limit":"blocked","key":%q,"for_ms":1000}`, `"name":"blocked"`},
			} {
				var group sync.WaitGroup
				for range requests {
					body := fmt.Sprintf(tt.body, freshKey(t))
					group.Go(func() {
						status, answer, err := postHalfClosed(p.Port(), tt.path, body)
						if err != nil || status != http.StatusOK ||
							!strings.Contains(answer, tt.answer) {
							t.Errorf("%s %s: %d %q (%v)", lib.scheme, tt.path, status, answer, err)
						}
					})
				}
				group.Wait()
			}
			if strings.Contains(p.Logged(), "undecided") {
				t.Errorf("log: %s", p.Logged())
			}
		}
	})
}

// postHalfClosed sends a request, closes its half of the connection and returns the answer.
func postHalfClosed(port, path, body string) (int, string, error) {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n"+
		"Authorization: Bearer "+daemon.Token+"\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body); err != nil {
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
