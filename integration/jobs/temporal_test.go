package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/edge"
)

// A temporalTest runs workflows on the clock of a test environment, which a store shares.
type temporalTest struct {
	*testing.T
	env   *testsuite.TestWorkflowEnvironment
	store *memorystore.Store
	began time.Time

	mu    sync.Mutex
	tries int
	runs  []string // when, by which worker, for which tenant, in which attempt
}

func newTemporalTest(t *testing.T) *temporalTest {
	t.Helper()
	suite := new(testsuite.WorkflowTestSuite)
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	store, err := memorystore.New(&memorystore.Options{
		Now: func() int64 { return env.Now().UnixMicro() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &temporalTest{T: t, env: env, store: store, began: env.Now()}
}

// register registers an activity of a worker with limits of its own on the store.
func (t *temporalTest) register(
	worker string, quota ratelimit.Limit, running int64, f func() error,
) {
	t.Helper()
	limits, err := NewLimits(t.store, quota, algorithm.InFlight("running", running))
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context, tenant string) error {
		t.mu.Lock()
		t.tries++
		t.mu.Unlock()
		return limits.Temporal(ctx, tenant, func(ctx context.Context) error {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.runs = append(t.runs, fmt.Sprint(t.env.Now().Sub(t.began).Round(time.Second), " ",
				worker, " ", tenant, " ", activity.GetInfo(ctx).Attempt))
			return f()
		})
	}
	t.env.RegisterActivityWithOptions(call, activity.RegisterOptions{Name: worker})
}

// run runs a workflow to its end. Its activities are tried three times.
func (t *temporalTest) run(f func(workflow.Context) error) error {
	t.Helper()
	t.env.ExecuteWorkflow(func(ctx workflow.Context) error {
		return f(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Minute,
			RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 3},
		}))
	})
	if !t.env.IsWorkflowCompleted() {
		t.Fatal("the workflow has not completed")
	}
	return t.env.GetWorkflowError()
}

// each executes an activity for each tenant at once, by one of two workers in turn.
func each(ctx workflow.Context, tenants ...string) error {
	var futures []workflow.Future
	for i, tenant := range tenants {
		future, set := workflow.NewFuture(ctx)
		workflow.Go(ctx, func(ctx workflow.Context) {
			set.SetError(Execute(ctx, nil, []string{"one", "two"}[i%2], tenant))
		})
		futures = append(futures, future)
	}
	var errs []error
	for _, future := range futures {
		errs = append(errs, future.Get(ctx, nil))
	}
	return errors.Join(errs...)
}

func succeed() error { return nil }

// TestTemporal: two workers together make the calls that the limit of a tenant admits in each
// window. Those of other tenants do not wait, and each is the first attempt.
func TestTemporal(t *testing.T) {
	tt := newTemporalTest(t)
	quota := ratelimit.PerMinute("quota", 5)
	tt.register("one", quota, 100, succeed)
	tt.register("two", quota, 100, succeed)
	err := tt.run(func(ctx workflow.Context) error {
		return each(ctx, append(slices.Repeat([]string{"ann"}, 12), "bob", "bob")...)
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int)
	for _, r := range tt.runs {
		var at, worker, tenant string
		var attempt int
		if _, err := fmt.Sscan(r, &at, &worker, &tenant, &attempt); err != nil || attempt != 1 {
			t.Errorf("%s: %v", r, err)
		}
		got[at+" "+tenant]++
	}
	if fmt.Sprint(got) != "map[0s ann:5 0s bob:2 1m0s ann:5 2m0s ann:2]" {
		t.Errorf("got %v", got)
	}
	// Seven calls are refused in the first minute, and two in the second.
	if tt.tries != 14+7+2 {
		t.Errorf("%d tries", tt.tries)
	}
}

// TestTemporalNextRetryDelay: a refusal that is an error with NextRetryDelay counts as an attempt.
func TestTemporalNextRetryDelay(t *testing.T) {
	for _, attempts := range []int32{2, 3} {
		tt := newTemporalTest(t)
		limiter, err := ratelimit.New(tt.store,
			algorithm.SlidingLog(ratelimit.PerMinute("quota", 1)))
		if err != nil {
			t.Fatal(err)
		}
		claims := []ratelimit.Claim{{Limiter: limiter, Key: "ann", N: 1}}
		tt.env.RegisterActivityWithOptions(func(ctx context.Context) error {
			err := edge.Do(ctx, claims, edge.Options{},
				func(context.Context) error { return errors.New("failed") })
			if wait, later := edge.RetryAfter(err); later {
				return temporal.NewApplicationErrorWithOptions(err.Error(), "Refused",
					temporal.ApplicationErrorOptions{NextRetryDelay: wait})
			}
			tt.runs = append(tt.runs, fmt.Sprint(tt.env.Now().Sub(tt.began).Round(time.Second)))
			return err
		}, activity.RegisterOptions{Name: "one"})
		err = tt.run(func(ctx workflow.Context) error {
			return workflow.ExecuteActivity(workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{
				InitialInterval: time.Second, MaximumAttempts: attempts}), "one").Get(ctx, nil)
		})
		// The second attempt, after a second, is refused. The third is a minute after the first.
		want := []string{"0s", "1m0s"}[:attempts-1]
		if err == nil || !slices.Equal(tt.runs, want) {
			t.Errorf("%d attempts: ran at %v, %v", attempts, tt.runs, err)
		}
	}
}

// TestTemporalReleases: an activity that panics or fails is not running any more.
func TestTemporalReleases(t *testing.T) {
	for name, f := range map[string]func() error{
		"fail":  func() error { return temporal.NewNonRetryableApplicationError("", "", nil) },
		"panic": func() error { panic("an activity") },
	} {
		tt := newTemporalTest(t)
		quota := ratelimit.PerHour("quota", 10)
		tt.register("one", quota, 1, f)
		tt.register("two", quota, 1, succeed)
		err := tt.run(func(ctx workflow.Context) error {
			if Execute(ctx, nil, "one", "ann") == nil {
				return errors.New("no error")
			}
			return Execute(ctx, nil, "two", "ann")
		})
		last := tt.runs[len(tt.runs)-1]
		took := tt.env.Now().Sub(tt.began) // the time-out is a minute
		if err != nil || !strings.HasSuffix(last, " two ann 1") || took > 10*time.Second {
			t.Errorf("%s: %v in %v, %v", name, tt.runs, took, err)
		}
	}
}
