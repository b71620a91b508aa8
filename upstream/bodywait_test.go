package upstream_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/upstream"
)

const quotaError = `{"error": {"code": 429, "message": "You exceeded your current quota.",
	"status": "RESOURCE_EXHAUSTED", "details": [
	{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "a"}]},
	{"@type": "type.googleapis.com/google.rpc.Help", "links": [], "retryDelay": 5},
	{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"}]}}`

// TestRetryDelay: the delay is found in an error and in an array of errors, which may not end.
func TestRetryDelay(t *testing.T) {
	const delay = 34074824224 * time.Nanosecond
	detail := func(fields string) string { return `{"error":{"details":[{` + fields + `}]}}` }
	const info = `"@type":"type.googleapis.com/google.rpc.RetryInfo"`
	for body, want := range map[string]time.Duration{
		quotaError:                                  delay,
		"[" + quotaError + "]":                      delay,
		"\r\n [" + quotaError + "\n,":               delay,
		detail(info + `,"retryDelay":"0s"`):         0,
		detail(info + `,"retryDelay":"-1s"`):        -1,
		detail(info + `,"retryDelay":"soon"`):       -1,
		detail(info + `,"retryDelay":7`):            -1,
		detail(info):                                -1,
		detail(`"retryDelay":"7s"`):                 -1,
		detail(`"@type":"a/B","retryDelay":"7s"`):   -1,
		quotaError[:len(quotaError)-1]:              -1,
		`{"error":{"details":null}}`:                -1,
		`{"error":"quota"}`:                         -1,
		`[]`:                                        -1,
		`[[` + quotaError + `]]`:                    -1,
		``:                                          -1,
		`<html>Too many requests</html>`:            -1,
		`{"error":{"details":["7s",7,null,[],{}]}}`: -1,
	} {
		got, ok := upstream.RetryDelay(429, []byte(body))
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %v, %v, want %v", body, got, ok, want)
		}
	}
}

// TestBodyWait: a cool-down has the time of the body if the fields of a refusal say none.
func TestBodyWait(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		fields []string
		body   string
		want   time.Duration
	}{
		{"Gemini", 429, nil, quotaError, 34075 * time.Millisecond},
		{"503", 503, nil, quotaError, 34075 * time.Millisecond},
		{"403", 403, nil, quotaError, 34075 * time.Millisecond},
		{"500", 500, nil, quotaError, 0},
		{"200", 200, nil, quotaError, 0},
		{"a field", 429, []string{"Retry-After", "7"}, quotaError, 7 * time.Second},
		{"a quota", 429, []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "9"}, quotaError,
			9 * time.Second},
		{"no wait", 429, nil, strings.Replace(quotaError, "34.074824224s", "0s", 1), 0},
		{"another body", 429, nil, "{}", upstream.DefaultCoolDown},
		{"an empty body", 429, nil, "", upstream.DefaultCoolDown},
		{"an encoded body", 429, []string{"Content-Encoding", "br"}, quotaError,
			upstream.DefaultCoolDown},
		{"capped", 429, nil, strings.Replace(quotaError, "34.074824224s", "86400s", 1),
			upstream.DefaultMaxCoolDown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store ratelimit.Store) {
				base := newBase()
				answer := roundTripper(func(r *http.Request) (*http.Response, error) {
					res, err := base.RoundTrip(r)
					if tt.body != "" {
						res.Body = io.NopCloser(iotest.OneByteReader(strings.NewReader(tt.body)))
					}
					return res, err
				})
				rt := newTransport(t, store, upstream.Options{Base: answer, Cost: secretKey,
					NoWait: true, BodyWait: upstream.RetryDelay}, ratelimit.PerHour("maps", 100))
				base.say(tt.status, tt.fields...)
				res, err := rt.RoundTrip(get(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				if body, err := io.ReadAll(res.Body); err != nil || string(body) != tt.body {
					t.Errorf("the caller reads %q, %v", body, err)
				}
				res.Body.Close()
				_, err = send(t.Context(), rt)
				if tt.want > 0 {
					wantLimited(t, err, "maps.cooldown", true, tt.want)
				} else if err != nil {
					t.Errorf("the next request: %v", err)
				}
			})
		})
	}
}

// serveBody returns a transport to a server whose answers h writes, and the server's URL. BodyWait
// sends what it gets.
func serveBody(
	t *testing.T, h http.HandlerFunc,
) (rt *upstream.Transport, url string, seen chan []byte) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	store := newStore()
	t.Cleanup(func() { _ = store.Close() })
	seen = make(chan []byte, 1)
	return newTransport(t, store, upstream.Options{Base: base, BodyWait: func(status int,
		body []byte) (time.Duration, bool) {
		if status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
		seen <- bytes.Clone(body)
		return 0, true
	}}, ratelimit.PerHour("maps", 100)), server.URL, seen
}

// TestBodyUnchanged: BodyWait gets the first 64 KiB, and the caller all of the body, its length and
// its error.
func TestBodyUnchanged(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 10_000)
	for _, tt := range []struct {
		name   string
		body   string
		length bool // whether the answer has a Content-Length
		gzip   bool
		broken bool // whether the connection ends before the body
	}{
		{name: "short", body: quotaError, length: true},
		{name: "of no length", body: quotaError},
		{name: "of 64 KiB", body: long[:64<<10], length: true},
		{name: "longer", body: long, length: true},
		{name: "longer, of no length", body: long},
		{name: "decoded by the base", body: long, gzip: true},
		{name: "broken", body: quotaError, length: true, broken: true},
		{name: "longer and broken", body: long, broken: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt, url, seen := serveBody(t, func(w http.ResponseWriter, _ *http.Request) {
				sent := []byte(tt.body)
				if tt.gzip {
					var b bytes.Buffer
					z := gzip.NewWriter(&b)
					_, _ = z.Write(sent)
					_ = z.Close()
					sent = b.Bytes()
					w.Header().Set("Content-Encoding", "gzip")
				}
				declared := int64(len(sent))
				if tt.broken {
					declared++
				}
				if tt.length {
					w.Header().Set("Content-Length", fmt.Sprint(declared))
				}
				w.WriteHeader(http.StatusTooManyRequests)
				if !tt.length {
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = w.Write(sent)
				if tt.broken {
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
			})
			res, err := rt.RoundTrip(getFrom(t.Context(), url))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			want := int64(-1)
			if tt.length {
				want = int64(len(tt.body))
				if tt.broken {
					want++
				}
			}
			if res.ContentLength != want || res.Uncompressed != tt.gzip {
				t.Errorf("Content-Length %d, want %d", res.ContentLength, want)
			}
			body, err := io.ReadAll(res.Body)
			if string(body) != tt.body || errors.Is(err, io.ErrUnexpectedEOF) != tt.broken {
				t.Errorf("the caller reads %d bytes of %d: %v", len(body), len(tt.body), err)
			}
			if got := <-seen; string(got) != tt.body[:min(len(tt.body), 64<<10)] {
				t.Errorf("BodyWait gets %d bytes", len(got))
			}
		})
	}
}

// TestBodyEncoded: BodyWait does not get a body that the caller has asked to be encoded.
func TestBodyEncoded(t *testing.T) {
	rt, url, seen := serveBody(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, "encoded")
	})
	r := getFrom(t.Context(), url)
	r.Header.Set("Accept-Encoding", "gzip")
	res, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != "encoded" || err != nil || len(seen) > 0 {
		t.Errorf("%q, %v", body, err)
	}
}

// slowBody returns the response of a body whose bytes the test writes.
func slowBody(
	t *testing.T, store ratelimit.Store, seen *string,
) (*upstream.Transport, *io.PipeWriter) {
	t.Helper()
	body, arrives := io.Pipe()
	answer := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 429, Header: http.Header{}, Body: body, Request: r}, nil
	})
	return newTransport(t, store, upstream.Options{Base: answer, Cost: secretKey,
		BodyWait: func(_ int, body []byte) (time.Duration, bool) {
			*seen = string(body)
			return 0, false
		}}, ratelimit.PerHour("maps", 100)), arrives
}

// TestSlowBody: a body that does not end holds up the caller for a second, or until the context
// ends; the caller gets what follows as it arrives, and Close ends a read that waits.
func TestSlowBody(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration // of the request
		want    time.Duration
	}{{"a second", time.Hour, time.Second}, {"the context", 300 * time.Millisecond,
		300 * time.Millisecond}} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store ratelimit.Store) {
				var seen string
				rt, arrives := slowBody(t, store, &seen)
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				go func() { _, _ = io.WriteString(arrives, "begin") }()
				began := time.Now()
				res, err := rt.RoundTrip(get(ctx))
				if err != nil || time.Since(began) != tt.want || seen != "begin" {
					t.Fatalf("after %v: %q, %v", time.Since(began), seen, err)
				}
				got := make([]byte, 100)
				for _, part := range []string{"begin", "second", "third"} {
					if part != "begin" {
						go func() { _, _ = io.WriteString(arrives, part) }()
					}
					if n, err := res.Body.Read(got); string(got[:n]) != part || err != nil {
						t.Fatalf("%q, %v, want %q", got[:n], err, part)
					}
				}
				read := make(chan error)
				go func() {
					_, err := res.Body.Read(got)
					read <- err
				}()
				synctest.Wait()
				res.Body.Close()
				if err := <-read; err == nil {
					t.Error("a read of a closed body has no error")
				}
			})
		})
	}
}

// TestSlowBodyClosed: a caller that does not read a body ends what reads ahead.
func TestSlowBodyClosed(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		var seen string
		rt, arrives := slowBody(t, store, &seen)
		go func() { _, _ = io.WriteString(arrives, "begin") }()
		res, err := rt.RoundTrip(get(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if n, err := res.Body.Read(make([]byte, 9)); n != 0 || err == nil {
			t.Errorf("%d bytes of a closed body, %v", n, err)
		}
	}) // the bubble fails if a goroutine is left
}
