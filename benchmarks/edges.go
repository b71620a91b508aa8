package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/grpclimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
	"github.com/truewindow/ratelimit/upstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const (
	oneLimit  = "one limit"
	twoLimits = "two limits"
	unaryCall = "gRPC, unary call"
)

// The quotas of edges admit as much as one CPU can request.
var (
	edgeQuota   = quota{100_000, time.Millisecond}
	secondQuota = quota{1_000_000, 10 * time.Millisecond}
)

// An edge is a call of middleware or of a client, and the same call without limits. call reports
// whether it was admitted.
type edge struct {
	call, bare func() (bool, error)
	close      func()
}

// over returns how many nanoseconds and allocations the call costs more than the bare one, and the
// admitted share.
func (e edge) over(ctx context.Context, duration time.Duration) ([]float64, error) {
	if e.close != nil {
		defer e.close()
	}
	measure := func(f func() (bool, error)) (rush, error) {
		w := workload{keys: []string{""}, warm: 5_000}
		return w.measure(ctx, decider{
			allow: func(context.Context, string) (bool, error) { return f() },
		}, 1, duration)
	}
	limited, err := measure(e.call)
	if err != nil {
		return nil, err
	}
	bare, err := measure(e.bare)
	return []float64{limited.nanoseconds() - bare.nanoseconds(),
		round2(limited.mallocs - bare.mallocs), limited.admittedShare()}, err
}

func edgeDuration(quick bool) time.Duration {
	if quick {
		return 100 * time.Millisecond
	}
	return 250 * time.Millisecond
}

// httpEdges measures middleware in front of a handler that only sets a status.
func httpEdges(quick bool) subject {
	s := subject{
		name: "http", title: "HTTP middleware in process", reference: xTime,
		metrics: []metric{
			{"time", "ns a request over the bare handler", "One CPU and one peer. Each response " +
				"has the library's header fields. x/time/rate: a limiter per peer address in a " +
				"sync.Map, without fields. Two limits: this module decides them together; of " +
				"the other libraries, two middlewares are chained.", false},
			{"allocations", "a request", "", true},
			{"admitted", "share of the requests", "If nothing should be refused, an entry " +
				"below 1 does not refill as its limit requires.", true},
		},
	}
	for _, c := range []struct {
		name   string
		quotas []quota
	}{
		{oneLimit, []quota{edgeQuota}},
		{twoLimits, []quota{edgeQuota, secondQuota}},
		{"refused", []quota{{10, time.Hour}}},
	} {
		s.cases = append(s.cases, testCase{
			name: c.name, entries: httpNames(),
			measure: func(ctx context.Context, entry string) ([]float64, error) {
				m, err := openHTTPEntry(entry, c.quotas...)
				if err != nil {
					return nil, err
				}
				return httpEdge(m).over(ctx, edgeDuration(quick))
			},
		})
	}
	return s
}

// answer is a ResponseWriter that keeps the header and the status, like a server's.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(p []byte) (int, error) { return len(p), nil }
func (a *answer) WriteHeader(status int)      { a.status = status }

func httpEdge(m middleware) edge {
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	request, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		panic(err) // a constant is invalid
	}
	request.RemoteAddr = "192.0.2.1:1234"
	serve := func(h http.Handler) func() (bool, error) {
		w := &answer{header: http.Header{}}
		return func() (bool, error) {
			clear(w.header) // each request has its own header
			h.ServeHTTP(w, request)
			switch w.status {
			case http.StatusOK, http.StatusTooManyRequests:
				return w.status == http.StatusOK, nil
			}
			return false, fmt.Errorf("got status %d, want 200 or 429", w.status)
		}
	}
	return edge{call: serve(m.wrap(bare)), bare: serve(bare), close: m.close}
}

// otherEdges measures middleware, clients and parts of them that no other library here has.
func otherEdges(quick bool) subject {
	s := subject{
		name: "edges", title: "Other edges in process",
		metrics: []metric{
			{"time", "ns per call, over the bare one", "One CPU, one key, one limit. gRPC: a " +
				"server interceptor with a key from metadata. Outgoing: a RoundTripper around " +
				"one that returns at once. Client: finding its address, from the peer or as the " +
				"right-most untrusted of three in X-Forwarded-For. Fields: writing those of " +
				"draft-11.", false},
			{"allocations", "per call", "", true},
			{"admitted", "share of the calls", "", true},
		},
	}
	for _, c := range []struct {
		name string
		open func() (edge, error)
	}{
		{unaryCall, grpcEdge},
		{"outgoing request", upstreamEdge},
		{"client, peer", func() (edge, error) {
			return addressEdge(clientip.Source{}, "192.0.2.1:1234"), nil
		}},
		{"client, X-Forwarded-For", func() (edge, error) {
			proxies := netip.MustParsePrefix("10.0.0.0/8")
			return addressEdge(clientip.XForwardedFor(proxies), "10.0.0.1:1234"), nil
		}},
		{"fields, one limit", func() (edge, error) { return fieldsEdge(edgeQuota), nil }},
		{"fields, two limits", func() (edge, error) {
			return fieldsEdge(edgeQuota, secondQuota), nil
		}},
	} {
		s.cases = append(s.cases, testCase{
			name: c.name, entries: []string{ours},
			measure: func(ctx context.Context, _ string) ([]float64, error) {
				e, err := c.open()
				if err != nil {
					return nil, err
				}
				return e.over(ctx, edgeDuration(quick))
			},
		})
	}
	return s
}

func grpcEdge() (edge, error) {
	store, err := memorystore.New(nil)
	if err != nil {
		return edge{}, err
	}
	limiter, err := newLogs(store, edgeQuota)
	if err != nil {
		store.Close()
		return edge{}, err
	}
	limited := grpclimit.UnaryServerInterceptor(
		grpclimit.PerCall(limiter, grpclimit.Metadata("x-user")))
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-user", "ann"))
	info := &grpc.UnaryServerInfo{FullMethod: "/example.Echo/Echo"}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	call := func(i grpc.UnaryServerInterceptor) func() (bool, error) {
		return func() (bool, error) {
			_, err := i(ctx, nil, info, handler)
			return err == nil, err
		}
	}
	return edge{
		call: call(limited),
		bare: call(func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
		) (any, error) {
			return handler(ctx, req)
		}),
		close: func() { store.Close() },
	}, nil
}

// atHand is a RoundTripper that returns its response at once.
type atHand struct{ response *http.Response }

func (t atHand) RoundTrip(*http.Request) (*http.Response, error) { return t.response, nil }

func upstreamEdge() (edge, error) {
	store, err := memorystore.New(nil)
	if err != nil {
		return edge{}, err
	}
	base := atHand{&http.Response{StatusCode: http.StatusOK, Header: http.Header{},
		Body: http.NoBody}}
	limited, err := upstream.New(store, &upstream.Options{Base: base, Margin: -1},
		edgeQuota.limit())
	if err != nil {
		store.Close()
		return edge{}, err
	}
	request, err := http.NewRequest(http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		panic(err) // a constant is invalid
	}
	call := func(t http.RoundTripper) func() (bool, error) {
		return func() (bool, error) {
			res, err := t.RoundTrip(request)
			if err != nil {
				return false, err
			}
			return true, res.Body.Close()
		}
	}
	return edge{call: call(limited), bare: call(base), close: func() { store.Close() }}, nil
}

func nothing() (bool, error) { return true, nil }

func addressEdge(source clientip.Source, peer string) edge {
	request, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		panic(err) // a constant is invalid
	}
	request.RemoteAddr = peer
	request.Header.Set("X-Forwarded-For", "203.0.113.66, 198.51.100.7, 10.0.0.2")
	return edge{
		call: func() (bool, error) {
			key, err := source.Key(request)
			return key != clientip.Unknown, err
		},
		bare: nothing,
	}
}

func fieldsEdge(quotas ...quota) edge {
	var items []headers.Item
	for i, q := range quotas {
		limit := q.limit()
		limit.Name = fmt.Sprint("limit", i+1)
		items = append(items, headers.Item{Limit: limit, Result: ratelimit.Result{
			Allowed: true, Limit: ratelimit.Limit{Max: q.max}, Remaining: q.max / 2, ResetAfter: 30 * time.Second}})
	}
	header := http.Header{}
	return edge{
		call: func() (bool, error) {
			clear(header)
			headers.Write(header, headers.Draft11, items...)
			return true, nil
		},
		bare: func() (bool, error) {
			clear(header)
			return true, nil
		},
	}
}

// edgeTargets bound the cost of limits for a request or a call.
func edgeTargets() (ts []target) {
	for _, c := range []struct{ what, subject, column string }{
		{"HTTP middleware, one limit", "http", oneLimit},
		{"HTTP middleware, two limits", "http", twoLimits},
		{"gRPC, unary call", "edges", unaryCall},
	} {
		ts = append(ts,
			absolute(c.what+", ns over the bare one", c.subject, "time", c.column, 1_000),
			absolute(c.what+", allocations over the bare one", c.subject, "allocations",
				c.column, 3))
	}
	return ts
}
