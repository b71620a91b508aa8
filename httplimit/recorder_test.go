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
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 100))
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
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 100))
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

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("planned") }

// TestRecorderOnHTTP2: with HTTP/2 a handler finds the same methods as without the middleware.
func TestRecorderOnHTTP2(t *testing.T) {
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 100))
	statuses := make(chan int, 1)
	limit := httplimit.New(claiming(one(limiter)), httplimit.WithCounting(
		func(status int) bool { statuses <- status; return true }))
	server := httptest.NewUnstartedServer(limit(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			flushes, hijacks, pushes := optional(w)
			if r.ProtoMajor != 2 || !flushes || hijacks || !pushes {
				t.Errorf("%s: flushes %v, hijacks %v, pushes %v", r.Proto, flushes, hijacks, pushes)
			}
			w.Header().Set("Trailer", "Sum")
			w.WriteHeader(http.StatusAccepted)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			fmt.Fprint(w, "body")
			w.Header().Set("Sum", "4")
		})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != "body" || err != nil {
		t.Errorf("%q %v", body, err)
	}
	if got := res.Trailer.Get("Sum"); got != "4" {
		t.Errorf("trailer %q", got)
	}
	if got := <-statuses; got != http.StatusAccepted {
		t.Errorf("status %d", got)
	}
}
