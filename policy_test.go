package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/truewindow/ratelimit"
)

// away is a store that decides nothing, made with a policy or without.
type away struct {
	policy ratelimit.Policy
	err    error
}

func (s away) Take(_ context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	return s.policy.Undecided(d, s.err), s.err
}

func (s away) TakeAll(_ context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	s.policy.UndecidedAll(ds, out, s.err)
	return s.err
}

// TestPolicy: who decides when the store is away, and how the answer says so.
func TestPolicy(t *testing.T) {
	const none = ratelimit.Policy(0)
	for _, tt := range []struct {
		store, limiter ratelimit.Policy
		err            error
		open           bool
	}{
		{none, none, ratelimit.ErrUnavailable, false},
		{ratelimit.FailClosed, none, ratelimit.ErrUnavailable, false},
		{ratelimit.FailOpen, none, ratelimit.ErrUnavailable, true},
		{ratelimit.FailLocal, none, ratelimit.ErrUnavailable, false},
		{none, ratelimit.FailOpen, ratelimit.ErrUnavailable, true},
		{ratelimit.FailClosed, ratelimit.FailOpen, ratelimit.ErrOutcomeUnknown, true},
		{ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.ErrUnavailable, false},
		{ratelimit.FailOpen, ratelimit.FailLocal, ratelimit.ErrUnavailable, false},
		{ratelimit.FailOpen, ratelimit.FailLocal + 1, ratelimit.ErrUnavailable, false},
		{ratelimit.FailOpen, none, ratelimit.ErrCapacity, true},
		{ratelimit.FailOpen, ratelimit.FailOpen, ratelimit.ErrCorruptState, false},
	} {
		for limits := 1; limits <= 2; limits++ {
			t.Run(fmt.Sprintf("store %v, limiter %v, %v, %d limits", tt.store, tt.limiter, tt.err, limits), func(t *testing.T) {
				algorithms := []ratelimit.Algorithm{naiveLog{ratelimit.PerMinute(7)}, naiveLog{ratelimit.PerHour(9)}}[:limits]
				l, err := ratelimit.New(away{tt.store, tt.err}, algorithms...)
				if err != nil {
					t.Fatal(err)
				}
				l = l.With(tt.limiter)
				for name, ask := range map[string]func() (ratelimit.Result, error){
					"Allow":  func() (ratelimit.Result, error) { return l.Allow(t.Context(), "k") },
					"AllowN": func() (ratelimit.Result, error) { return l.AllowN(t.Context(), "k", 2) },
					"Peek":   func() (ratelimit.Result, error) { return l.Peek(t.Context(), "k") },
					"Wait":   func() (ratelimit.Result, error) { return l.Wait(t.Context(), "k") },
				} {
					res, err := ask()
					want := ratelimit.Result{Source: ratelimit.SourceClosed, Limit: 7}
					if tt.open {
						want.Allowed, want.Source = true, ratelimit.SourceOpen
					}
					if tt.open != (err == nil) || !tt.open && !errors.Is(err, tt.err) || res != want {
						t.Errorf("%s: %+v, %v", name, res, err)
					}
				}
				each, err := l.AllowEach(t.Context(), "k", 1, nil)
				if tt.open {
					if err != nil || len(each) != limits || each[limits-1].Source != ratelimit.SourceOpen || !each[limits-1].Allowed {
						t.Errorf("AllowEach: %+v, %v", each, err)
					}
				} else if !errors.Is(err, tt.err) || len(each) != 0 {
					t.Errorf("AllowEach: %+v, %v", each, err)
				}
				if err := l.Reset(t.Context(), "k"); !errors.Is(err, tt.err) {
					t.Errorf("Reset: %v, and nothing was reset", err)
				}
			})
		}
	}
}

// TestPolicyOtherErrors: a demand that is wrong is not admitted because the store would be away.
func TestPolicyOtherErrors(t *testing.T) {
	for _, wrong := range []error{ratelimit.ErrExceedsLimit, ratelimit.ErrInvalidDemand, ratelimit.ErrNoScript, errors.New("other")} {
		for _, s := range []ratelimit.Store{away{ratelimit.FailOpen, wrong}, always{ratelimit.Result{Allowed: true, Source: ratelimit.SourceOpen}, wrong}} {
			l, err := ratelimit.New(s, naiveLog{ratelimit.PerMinute(7)})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []*ratelimit.Limiter{l, l.With(ratelimit.FailOpen)} {
				if res, err := l.Allow(t.Context(), "k"); !errors.Is(err, wrong) || res != (ratelimit.Result{}) {
					t.Errorf("%v: %+v, %v", wrong, res, err)
				}
			}
		}
	}
}

// always returns the same, whatever it is asked.
type always struct {
	res ratelimit.Result
	err error
}

func (s always) Take(context.Context, ratelimit.Demand) (ratelimit.Result, error) {
	return s.res, s.err
}

func (s always) TakeAll(context.Context, []ratelimit.Demand, []ratelimit.Result) error { return s.err }

// TestPolicyCanceled: nobody waits for the answer, so nobody is admitted; but who waits no longer than this is let pass.
func TestPolicyCanceled(t *testing.T) {
	l, err := ratelimit.New(away{ratelimit.FailOpen, ratelimit.ErrUnavailable}, naiveLog{ratelimit.PerMinute(7)})
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if res, err := l.Allow(canceled, "k"); err == nil || res.Allowed {
		t.Errorf("admitted a caller who has left: %+v, %v", res, err)
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if res, err := l.Allow(late, "k"); err != nil || res.Source != ratelimit.SourceOpen {
		t.Errorf("at the deadline: %+v, %v", res, err)
	}
}

// TestPolicyStale: a store that leaves the results of a TakeAll as they are is not taken to have said what it said to another.
func TestPolicyStale(t *testing.T) {
	s := &switching{Store: away{ratelimit.FailOpen, ratelimit.ErrUnavailable}}
	l, err := ratelimit.New(s, naiveLog{ratelimit.PerMinute(7)}, naiveLog{ratelimit.PerHour(9)})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != ratelimit.SourceOpen {
		t.Fatalf("%+v, %v", res, err)
	}
	s.Store = always{err: ratelimit.ErrUnavailable}
	for range 10 {
		if res, err := l.Allow(t.Context(), "k"); err == nil || res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

type switching struct{ ratelimit.Store }

func TestPolicyNames(t *testing.T) {
	for _, p := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen, ratelimit.FailLocal} {
		if got, err := ratelimit.ParsePolicy(p.String()); got != p || err != nil || !p.Valid() {
			t.Errorf("ParsePolicy(%q) = %v, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "none", "Open", "policy(9)"} {
		if p, err := ratelimit.ParsePolicy(s); !errors.Is(err, ratelimit.ErrInvalidLimit) || p != 0 {
			t.Errorf("ParsePolicy(%q) = %v, %v", s, p, err)
		}
	}
	if s := ratelimit.Policy(9).String(); s != "policy(9)" || ratelimit.Policy(9).Valid() || ratelimit.Policy(0).Valid() {
		t.Error(s)
	}
}

// Whatever ParsePolicy accepts is a policy, and written so.
func FuzzParsePolicy(f *testing.F) {
	for _, s := range []string{"closed", "open", "local", "none", "", "Open", "policy(3)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ratelimit.ParsePolicy(s)
		if err != nil {
			wantErr(t, err, ratelimit.ErrInvalidLimit)
		}
		if p.Valid() != (err == nil) || err == nil && p.String() != s {
			t.Fatalf("ParsePolicy(%q) = %v, %v", s, p, err)
		}
	})
}
