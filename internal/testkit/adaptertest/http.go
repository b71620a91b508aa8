package adaptertest

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Word is the header field that carries the word of a call over HTTP.
const Word = "Word"

// StatusFailed is the status of an answer when the work of an HTTP service has failed.
const StatusFailed = http.StatusTeapot

// HTTP returns the adapter of a framework of HTTP servers. start starts a server and returns the
// URL at which it calls work behind limit; if work fails, it answers with StatusFailed.
func HTTP(
	start func(
		t testing.TB, limit func(http.Handler) http.Handler, work func(context.Context) error,
	) (url string),
	lacks map[string]string,
) Adapter {
	all := map[string]string{"wait": "a server does not wait"}
	for name, why := range lacks {
		all[name] = why
	}
	return Adapter{Lacks: all, Serve: func(t testing.TB, s Service) Call {
		return HTTPCall(t, start(t, Limit(s), s.Work))
	}}
}

// Limit returns middleware that limits requests as s says.
func Limit(s Service, opts ...httplimit.Option) func(http.Handler) http.Handler {
	if s.Counting {
		opts = append(opts, httplimit.WithCounting(Succeeded))
	}
	return httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
		return s.Choose(r.Header.Get(Word))
	}, opts...)
}

// Succeeded reports whether a status says that the work has succeeded.
func Succeeded(status int) bool { return status == http.StatusOK }

// Handler calls work for each request.
func Handler(work func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := work(r.Context()); err != nil {
			w.WriteHeader(StatusFailed)
		}
	})
}

// HTTPCall returns a call that requests url.
func HTTPCall(t testing.TB, url string) Call {
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return func(ctx context.Context, word string) Answer {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Error(err)
			return Answer{}
		}
		req.Header.Set(Word, word)
		res, err := client.Do(req)
		if err != nil {
			return Answer{Failed: true, Text: err.Error()}
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return Answer{Failed: true, Text: err.Error()}
		}
		return answerOf(t, res, body)
	}
}

// answerOf reads an answer of package httplimit.
func answerOf(t testing.TB, res *http.Response, body []byte) Answer {
	a := Answer{Text: res.Status + " " + string(body)}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	if res.Header.Get("Content-Type") != problem.ContentType {
		a.Failed = res.StatusCode != http.StatusOK
		return a
	}
	var p problem.Problem
	if err := json.Unmarshal(body, &p); err != nil {
		t.Errorf("%s: %v", a.Text, err)
	}
	a.Limits = p.ViolatedPolicies
	switch {
	case p.Status == http.StatusTooManyRequests && p.Type == problem.AbnormalUsage:
		a.Reason = edge.Blocked
	case p.Status == http.StatusTooManyRequests:
		a.Reason = edge.Exceeded
	case p.Status == http.StatusServiceUnavailable && p.ViolatedPolicies != nil:
		a.Reason = edge.Reduced
	case p.Status == http.StatusServiceUnavailable:
		a.Reason = edge.Undecided
	case p.Status == http.StatusUnprocessableEntity:
		a.Reason = edge.Never
	case p.Status == http.StatusBadRequest:
		a.Reason = edge.Unattributed
	case p.Status == http.StatusInternalServerError:
		a.Reason = edge.Misconfigured
	default:
		t.Errorf("unexpected answer: %s", a.Text)
	}
	return a
}

// ServeHTTP starts a server of HTTP/1.1 and HTTP/2 that logs no panics, until the test ends, and
// returns its URL.
func ServeHTTP(t testing.TB, h http.Handler) (url string) {
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}
