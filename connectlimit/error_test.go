package connectlimit_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/connectlimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

func done(context.Context) error { return nil }

// fixed is a Choose of the same claims for all calls.
func fixed(claims ...ratelimit.Claim) connectlimit.Choose {
	return func(context.Context, string, any) ([]ratelimit.Claim, error) { return claims, nil }
}

func claim(l *ratelimit.Limiter) ratelimit.Claim {
	return ratelimit.Claim{Limiter: l, Key: "secret-key", N: 1}
}

// TestBrowser: what a person sees who calls a procedure with JSON over HTTP/1.1. The clock stands
// still, so that all is exact.
func TestBrowser(t *testing.T) {
	store := limittest.NewStore(t, limittest.NewClock())
	hour := limittest.NewLimiter(t, store, ratelimit.PerHour("hour", 1))
	url := serve(t, newServer(done, connectlimit.ServerInterceptor(fixed(claim(hour)))))
	post := func() (*http.Response, string) {
		res, err := http.Post(url+specOf(connect.StreamTypeUnary).Procedure, "application/json",
			strings.NewReader(`"hello"`))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(body)
	}
	if res, body := post(); res.StatusCode != http.StatusOK || body != `"hello"` {
		t.Errorf("got %s: %s", res.Status, body)
	}
	res, body := post()
	if res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("got %s", res.Status)
	}
	for name, want := range map[string]string{
		"Content-Type":     "application/json",
		"Retry-After":      "3600",
		"Ratelimit":        `"hour";r=0;t=3600`,
		"Ratelimit-Policy": `"hour";q=1;w=3600`,
	} {
		if got := strings.Join(res.Header.Values(name), ", "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	var told struct {
		Code, Message string
		Details       []struct {
			Type  string
			Debug json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(body), &told); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if told.Code != "resource_exhausted" || told.Message != "rate limit exceeded: hour" {
		t.Errorf("got %+v", told)
	}
	var types []string
	for _, detail := range told.Details {
		types = append(types, detail.Type)
	}
	if got := strings.Join(types, " "); got !=
		"google.rpc.ErrorInfo google.rpc.QuotaFailure google.rpc.RetryInfo" {
		t.Errorf("got details %q", got)
	}
	if strings.Contains(body, "secret-key") {
		t.Errorf("the key is in the answer: %s", body)
	}
}

// TestRefusalOf: a client reads what the limits say, in all protocols.
func TestRefusalOf(t *testing.T) {
	store := limittest.NewStore(t, limittest.NewClock())
	hour := limittest.NewLimiter(t, store, ratelimit.PerHour("hour", 1))
	url := serve(t, newServer(done, connectlimit.ServerInterceptor(fixed(claim(hour)))))
	if err := call(t.Context(), newClient(url, nil), connect.StreamTypeUnary); err != nil {
		t.Fatal(err)
	}
	for protocol, opts := range protocols {
		for _, kind := range kinds {
			err := call(t.Context(), newClient(url, opts), kind)
			if connect.CodeOf(err) != connect.CodeResourceExhausted || connectlimit.IsLocal(err) {
				t.Errorf("%s, %s: %v", protocol, kind, err)
			}
			r, ok := connectlimit.RefusalOf(err)
			if !ok || r.Reason != edge.Exceeded || r.RetryAfter != time.Hour ||
				len(r.Limits) != 1 || r.Limits[0].Name != "hour" {
				t.Errorf("%s, %s: got %+v, %t", protocol, kind, r, ok)
			}
		}
	}
	if r, ok := connectlimit.RefusalOf(connect.NewError(connect.CodeUnavailable, "")); ok {
		t.Errorf("another error has the refusal %+v", r)
	}
}

// TestLocal: a client's own refusal is local, and no call is sent.
func TestLocal(t *testing.T) {
	store := limittest.NewStore(t, limittest.NewClock())
	hour := limittest.NewLimiter(t, store, ratelimit.PerHour("hour", 1))
	served := 0
	url := serve(t, newServer(func(context.Context) error { served++; return nil }))
	client := newClient(url, nil, connectlimit.ClientInterceptor(fixed(claim(hour))))
	if err := call(t.Context(), client, connect.StreamTypeUnary); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		err := call(t.Context(), client, kind)
		if !connectlimit.IsLocal(err) || connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if served != 1 {
		t.Errorf("%d calls were served, want 1", served)
	}
}

// TestCodeOfChoose: a client gets the code of the error that a Choose returns, and not its text.
func TestCodeOfChoose(t *testing.T) {
	url := serve(t, newServer(done, connectlimit.ServerInterceptor(
		func(context.Context, string, any) ([]ratelimit.Claim, error) {
			return nil, connect.NewError(connect.CodeUnauthenticated, "secret-key")
		})))
	err := call(t.Context(), newClient(url, nil), connect.StreamTypeUnary)
	if connect.CodeOf(err) != connect.CodeUnauthenticated ||
		strings.Contains(err.Error(), "secret-key") {
		t.Errorf("got %v", err)
	}
}
