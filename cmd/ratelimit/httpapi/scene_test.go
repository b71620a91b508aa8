package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

const secret = apitest.Secret

var (
	discard           = apitest.Discard
	request, call     = apitest.Request, apitest.Call
	of, one, hold, id = apitest.Of, apitest.One, apitest.Hold, apitest.ID
)

// testFlags are the limits of most tests.
func testFlags() config.Flags {
	return config.Flags{
		Limit: config.LimitFlags(
			ratelimit.PerMinute("requests", 3), ratelimit.PerMinute("tokens", 100)),
		InFlight: []ratelimit.Limit{{Name: "calls", Max: 2, Window: 10 * time.Minute}},
		Block:    []config.BlockFlag{{Block: algorithm.Blocking("blocked", time.Hour)}},
	}
}

// A scene is an API, the ids that it has returned, and the clock of its store.
type scene struct {
	*testing.T
	api     *API
	access  *Access // nil without credentials
	store   ratelimit.Store
	advance func(time.Duration)
	ids     []string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	store, err := memorystore.New(&memorystore.Options{Now: now.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &scene{T: t, api: flagsAPI(t, testFlags(), store), store: store,
		advance: func(d time.Duration) { now.Add(d.Microseconds()) }}
}

// flagsAPI returns an API with the limits of flags.
func flagsAPI(
	t testing.TB, f config.Flags, store ratelimit.Store, options ...decision.Option,
) *API {
	t.Helper()
	set, err := f.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Decider: deciderOf(t, set, store, options...),
		Config: func() *config.Config { return nil }, Log: discard})
}

// fileAPI returns an API with the limits of a file, which has the text.
func fileAPI(
	t testing.TB, text string, store ratelimit.Store, options ...decision.Option,
) *API {
	t.Helper()
	c, err := config.Source{Path: apitest.ConfigFile(t, text)}.Load()
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Decider: deciderOf(t, c.Set, store, options...),
		Config: func() *config.Config { return c }, Log: discard})
}

func deciderOf(
	t testing.TB, set *rules.Set, store ratelimit.Store, options ...decision.Option,
) *decision.Decider {
	t.Helper()
	d := decision.New(store, options...)
	if err := d.Use(set); err != nil {
		t.Fatal(err)
	}
	return d
}

// limitsAPI returns an API with limits of --limit only.
func limitsAPI(t testing.TB, store ratelimit.Store, limits ...ratelimit.Limit) *API {
	t.Helper()
	return flagsAPI(t, config.Flags{Limit: config.LimitFlags(limits...)}, store)
}

// fileScene is a scene with the limits of a file.
func fileScene(t *testing.T, limits string) *scene {
	t.Helper()
	s := newScene(t)
	s.api = fileAPI(t, limits, s.store)
	return s
}

// post sends a request in whose body $1 is the first id that was returned, $2 the second, and so
// on. It returns the parsed answer.
func (s *scene) post(path, body string) (status int, header http.Header, answer map[string]any) {
	s.Helper()
	return s.request(http.MethodPost, path, body)
}

// request is post with a method.
func (s *scene) request(
	method, path, body string,
) (status int, header http.Header, answer map[string]any) {
	s.Helper()
	for i, id := range s.ids {
		body = strings.ReplaceAll(body, fmt.Sprintf("$%d", i+1), id)
	}
	status, header, text := call(s.T, s.api, request(method, path, body))
	if text != "" {
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			s.Fatalf("%v: %s", err, text)
		}
	}
	if id, ok := answer["id"].(string); ok {
		s.ids = append(s.ids, id)
	}
	return status, header, answer
}

// left returns the state of a key under a limit by its name.
func left(t testing.TB, a *API, limit, key string) ratelimit.Result {
	t.Helper()
	d, err := a.decider.Decide(t.Context(),
		[]decision.Request{{Limit: limit, Key: key}}, decision.Options{Peek: true})
	if err != nil {
		t.Fatal(err)
	}
	return d.Parts[0].Statuses[0].Result
}

// checkLeft compares what remains of the budgets of the key secret, as in "requests=2 tokens=40".
func (s *scene) checkLeft(want string) {
	s.Helper()
	var got []string
	for part := range strings.FieldsSeq(want) {
		name, _, _ := strings.Cut(part, "=")
		got = append(got, fmt.Sprintf("%s=%d", name, left(s.T, s.api, name, secret).Remaining))
	}
	if got := strings.Join(got, " "); got != want {
		s.Errorf("left %s, want %s", got, want)
	}
}

// step is one request of a sequence, and what remains after it.
type step struct {
	path, body string
	status     int
	typ        string // of a problem, after the #
	left       string
	advance    time.Duration // before it
}

func (s *scene) play(steps ...step) {
	s.Helper()
	for i, step := range steps {
		s.advance(step.advance)
		status, _, answer := s.post(step.path, step.body)
		typ, _ := answer["type"].(string)
		if _, typ, _ = strings.Cut(typ, "#"); status != step.status || typ != step.typ {
			s.Errorf("step %d, %s %s: %d %v, want %d %s",
				i, step.path, step.body, status, answer, step.status, step.typ)
		}
		if step.left != "" {
			s.checkLeft(step.left)
		}
		if s.Failed() {
			s.Fatalf("step %d", i)
		}
	}
}

// heldID returns the id of held claims, written as for of.
func heldID(t *testing.T, claims string) string {
	t.Helper()
	s := newScene(t)
	if status, _, answer := s.post("/v1/decide", hold(claims)); status != http.StatusOK {
		t.Fatal(answer)
	}
	return s.ids[0]
}

// untouched is a store that must not be called.
type untouched struct{ t *testing.T }

func (a untouched) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	a.t.Error("the store is asked")
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

func (a untouched) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	a.t.Error("the store is asked")
	return ratelimit.ErrUnavailable
}

// faltering is a store that fails with the next of its errors, if that is not nil.
type faltering struct {
	ratelimit.Store
	errs     []error
	recorded bool         // whether a Take that fails is recorded all the same
	calls    atomic.Int64 // of the store
}

func (f *faltering) next() error {
	f.calls.Add(1)
	if len(f.errs) == 0 {
		return nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return err
}

func (f *faltering) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if err := f.next(); err != nil {
		if f.recorded {
			_, _ = f.Store.Take(ctx, d)
		}
		return ratelimit.Result{}, err
	}
	return f.Store.Take(ctx, d)
}

func (f *faltering) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Store.TakeAll(ctx, ds, out)
}
