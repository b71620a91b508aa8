package grpclimit_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/grpclimit"
	"github.com/truewindow/ratelimit/layer"
)

// flaky is a store that fails while away is set.
type flaky struct {
	ratelimit.Store
	away atomic.Bool
}

func (f *flaky) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if f.away.Load() {
		return ratelimit.Result{}, ratelimit.ErrUnavailable
	}
	return f.Store.Take(ctx, d)
}

func (f *flaky) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	if f.away.Load() {
		return ratelimit.ErrUnavailable
	}
	return f.Store.TakeAll(ctx, ds, out)
}

// TestRefusedByShare: a refusal by the reduced share of a limit is the server's fault. A refusal by
// a share that is the whole limit is the caller's. Both have the time to wait.
func TestRefusedByShare(t *testing.T) {
	for _, tt := range []struct {
		instances int
		code      codes.Code
		reason    string
	}{
		{1, codes.ResourceExhausted, grpclimit.ReasonExceeded},
		{2, codes.Unavailable, grpclimit.ReasonReduced},
	} {
		inside := &flaky{Store: newStore(t, newClock())}
		store, err := layer.NewDegraded(inside, &layer.DegradedOptions{Instances: tt.instances})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		limiter := newLimiter(t, store, ratelimit.PerHour("hour", 4))
		inside.away.Store(true)
		cc := start(t, &echo{},
			limited(grpclimit.PerCall(limiter, secretKey), grpclimit.WithPushback()))
		for range 4 / tt.instances {
			if err := call(t.Context(), cc); err != nil {
				t.Fatal(err)
			}
		}
		var trailer metadata.MD
		d := checkStatus(t, call(t.Context(), cc, grpc.Trailer(&trailer)), tt.code)
		if d.info.GetReason() != tt.reason || d.info.GetMetadata()["limits"] != "hour" {
			t.Errorf("ErrorInfo %v, want %s of hour", d.info, tt.reason)
		}
		// A reduced share is not the caller's quota.
		if (d.quota == nil) != (tt.code == codes.Unavailable) {
			t.Errorf("%v: QuotaFailure %v", tt.code, d.quota)
		}
		if got := d.retry.GetRetryDelay().AsDuration(); got < 59*time.Minute {
			t.Errorf("RetryInfo %v, want nearly an hour", got)
		}
		if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] < "3540000" {
			t.Errorf("pushback %v", got)
		}
	}
}

// TestRefusedByBlock: the status shows whether a block or a limit refuses, and when it ends.
func TestRefusedByBlock(t *testing.T) {
	store := newStore(t, newClock())
	blocked, err := ratelimit.New(store, algorithm.Blocking("blocked", 24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	limiter := newLimiter(t, store, ratelimit.PerHour("hour", 1))
	cc := start(t, &echo{}, limited(fixed(
		ratelimit.Claim{Limiter: blocked, Key: secret, N: 1},
		ratelimit.Claim{Limiter: limiter, Key: secret, N: 1},
	), grpclimit.WithBlocks("blocked"), grpclimit.WithBlocks("another")))
	if err := call(t.Context(), cc); err != nil {
		t.Fatal(err)
	}
	d := checkStatus(t, call(t.Context(), cc), codes.ResourceExhausted)
	if d.info.GetReason() != grpclimit.ReasonExceeded {
		t.Errorf("ErrorInfo %v of a limit", d.info)
	}
	if _, err := blocked.Force(t.Context(), secret, algorithm.BlockFor(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	d = checkStatus(t, call(t.Context(), cc), codes.ResourceExhausted)
	if d.info.GetReason() != grpclimit.ReasonBlocked ||
		d.info.GetMetadata()["limits"] != "blocked,hour" {
		t.Errorf("ErrorInfo %v of a block and a limit", d.info)
	}
	v := d.quota.GetViolations()
	if len(v) != 2 || v[0].GetDescription() != "blocked" || v[0].GetQuotaValue() != 0 ||
		v[1].GetQuotaValue() != 1 {
		t.Errorf("violations %v: a block has no quota", v)
	}
	if got := d.retry.GetRetryDelay().AsDuration(); got != 2*time.Hour {
		t.Errorf("RetryInfo %v, want 2h", got)
	}
}

// TestWaitOfTooMany: a call is refused, without a time to wait, if too many others wait for its
// key. The store stands for their queue.
func TestWaitOfTooMany(t *testing.T) {
	store := broken{ratelimit.ErrQueueFull}
	for _, limits := range [][]ratelimit.Limit{{ratelimit.PerSecond("second", 1)},
		{ratelimit.PerSecond("second", 1), ratelimit.PerDay("day", 9)}} {
		limiter := newLimiter(t, store, limits...).WithPolicy(ratelimit.FailWait)
		i := grpclimit.UnaryClientInterceptor(
			grpclimit.PerCall(limiter, secretKey), grpclimit.WithWait())
		_, err := invoke(t.Context(), i, func() error {
			t.Error("the call was sent")
			return nil
		})
		d := checkStatus(t, err, codes.ResourceExhausted)
		if d.info.GetReason() != grpclimit.ReasonExceeded || d.retry != nil ||
			len(d.quota.GetViolations()) != len(limits) {
			t.Errorf("details %v", d)
		}
	}
}

// TestWaitNamesTheLimit: if two limits have the same Max, the refusal of a wait names the one that
// refuses.
func TestWaitNamesTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, newStore(t, nil),
			ratelimit.PerSecond("burst", 2), ratelimit.PerMinute("steady", 2))
		i := grpclimit.UnaryClientInterceptor(
			grpclimit.PerCall(limiter, secretKey), grpclimit.WithWait())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		ok := func() error { return nil }
		for range 2 {
			if _, err := invoke(ctx, i, ok); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		_, err := invoke(ctx, i, ok)
		d := checkStatus(t, err, codes.ResourceExhausted)
		if got := d.info.GetMetadata()["limits"]; got != "steady" {
			t.Errorf("refused by %q, want steady", got)
		}
		if got := d.retry.GetRetryDelay().AsDuration(); got != 59*time.Second {
			t.Errorf("RetryInfo %v, want 59s", got)
		}
	})
}
