// Package apitest has what tests of the service share.
package apitest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Secret is a key that must be neither in the log nor in an answer.
const Secret = "secret-key"

// Token is the write token of the services that tests start.
const Token = "a-token-of-the-tests"

// Discard is a log that keeps nothing.
var Discard = slog.New(slog.DiscardHandler)

// Request returns a request, whose body is JSON.
func Request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// Call answers a request and returns the status, the headers and the body, in which it looks for
// Secret.
func Call(t *testing.T, h http.Handler, r *http.Request) (int, http.Header, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	res := rec.Result()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(res.Header)+string(body), Secret) {
		t.Errorf("the key is in the answer: %v %s", res.Header, body)
	}
	if got := res.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	return res.StatusCode, res.Header, string(body)
}

// AnswerOf returns the body of the answer to a request, which must succeed.
func AnswerOf(t testing.TB, h http.Handler, path, body string) []byte {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, Request(http.MethodPost, path, body))
	if rec.Code >= 300 {
		t.Fatalf("%s %s: %d %s", path, body, rec.Code, rec.Body)
	}
	return rec.Body.Bytes()
}

// A Log is a bytes.Buffer for several goroutines.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Log) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *Log) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// What a client of HTTP/2 sends first: the preface, and a frame of settings without one.
const (
	HTTP2Preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	HTTP2Settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)
