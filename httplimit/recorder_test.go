package httplimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit"
)

// Writers with some of the optional methods, as other middlewares make them.
type (
	flushing  struct{ http.ResponseWriter }
	hijacking struct{ http.ResponseWriter }
	pushing   struct{ http.ResponseWriter }
)

func (flushing) Flush()                                              {}
func (hijacking) Hijack() (_ net.Conn, _ *bufio.ReadWriter, _ error) { return }
func (pushing) Push(string, *http.PushOptions) error                 { return http.ErrNotSupported }
func optional(w http.ResponseWriter) (flushes, hijacks, pushes bool) {
	_, flushes = w.(http.Flusher)
	_, hijacks = w.(http.Hijacker)
	_, pushes = w.(http.Pusher)
	return flushes, hijacks, pushes
}

// TestRecorderOnOtherWriters: handlers find the optional methods of the writer, whichever of them
// it has, and a hijacked connection has the status 101.
func TestRecorderOnOtherWriters(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 100))
	under := bare{httptest.NewRecorder()}
	for _, w := range []http.ResponseWriter{
		under,
		flushing{under},
		hijacking{under},
		struct {
			http.ResponseWriter
			http.Flusher
			http.Hijacker
		}{under, flushing{}, hijacking{}},
		struct {
			http.ResponseWriter
			http.Flusher
			http.Pusher
		}{under, flushing{}, pushing{}},
	} {
		flushes, hijacks, pushes := optional(w)
		name := fmt.Sprintf("flushes %v, hijacks %v, pushes %v", flushes, hijacks, pushes)
		t.Run(name, func(t *testing.T) {
			status := 0
			httplimit.New(claiming(one(limiter)), httplimit.WithCounting(
				func(got int) bool { status = got; return true },
			))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				f, h, p := optional(w)
				if f != flushes || h != hijacks || p != pushes {
					t.Errorf("found: flushes %v, hijacks %v, pushes %v", f, h, p)
				}
				_, _, err := http.NewResponseController(w).Hijack()
				if (err == nil) != hijacks {
					t.Errorf("hijack: %v", err)
				}
			})).ServeHTTP(w, get())
			if want := map[bool]int{true: 101, false: 200}[hijacks]; status != want {
				t.Errorf("status %d, want %d", status, want)
			}
		})
	}
}

// TestNothingToReadFrom: a source that fails or ends before its first byte writes no status.
func TestNothingToReadFrom(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 100))
	for name, src := range map[string]io.Reader{
		"fails": failingReader{},
		"empty": io.LimitReader(failingReader{}, 0),
	} {
		t.Run(name, func(t *testing.T) {
			statuses := make(chan int, 1)
			server := httptest.NewServer(httplimit.New(claiming(one(limiter)),
				httplimit.WithCounting(func(status int) bool { statuses <- status; return true }),
			)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if n, _ := io.Copy(w, src); n == 0 {
					w.WriteHeader(http.StatusBadGateway)
				}
			})))
			defer server.Close()
			res, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if got := <-statuses; got != res.StatusCode {
				t.Errorf("counted as %d, and the client got %d", got, res.StatusCode)
			}
		})
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("away") }
