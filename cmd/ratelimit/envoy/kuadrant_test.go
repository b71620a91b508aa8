package envoy

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// budgetLimit is 100 units a minute for each value of an entry, which is also its name.
func budgetLimit(entry string, holds time.Duration) *rules.Limit {
	return &rules.Limit{
		Name: entry, Key: []string{entry}, Algorithm: "log", Holds: holds,
		When: []rules.Condition{{Entry: entry, Prefix: true}},
		Rate: rules.Rate{Units: 100, Window: time.Minute},
	}
}

// A budget is a service under limits of budgetLimit.
type budget struct {
	testing.TB
	*kuadrantService
}

// newBudgets returns two services on one store. The limit tokens has holds of a minute, the limit
// plain has none.
func newBudgets(t testing.TB, more ...*rules.Limit) (a, b budget) {
	t.Helper()
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return newBudget(t, store, more...), newBudget(t, store, more...)
}

func newBudget(t testing.TB, store ratelimit.Store, more ...*rules.Limit) budget {
	t.Helper()
	more = append(more, budgetLimit("tokens", time.Minute), budgetLimit("plain", 0))
	return budget{t, &kuadrantService{Service: newService(t, store, Config{},
		new(strings.Builder), more...)}}
}

func (b budget) check(want rls.RateLimitResponse_Code, n uint32, entry string) {
	b.Helper()
	req := request(entry)
	req.HitsAddend = n
	resp, err := b.CheckRateLimit(b.Context(), req)
	if err != nil || resp.GetOverallCode() != want {
		b.Fatalf("%d units of %s: %v %v, want %v", n, entry, resp, err, want)
	}
}

// left expects so many units to be free.
func (b budget) left(want uint32, entry string) {
	b.Helper()
	resp, err := b.CheckRateLimit(b.Context(), request(entry))
	if err != nil || resp.GetStatuses()[0].GetLimitRemaining() != want {
		b.Errorf("%v %v of %s, want %d left", resp, err, entry, want)
	}
}

// reserve returns an id if the units are held.
func (b budget) reserve(
	want rls.RateLimitResponse_Code, n uint64, ttl time.Duration, entries ...string,
) string {
	b.Helper()
	req := &kuadrant.ReserveRequest{Domain: "shop", Amount: n}
	if ttl != 0 {
		req.Ttl = durationpb.New(ttl)
	}
	for _, entry := range entries {
		req.Descriptors = append(req.Descriptors, descriptor(entry))
	}
	resp, err := b.Reserve(b.Context(), req)
	if err != nil || resp.GetCode() != want {
		b.Fatalf("%d units of %v: %v %v, want %v", n, entries, resp, err, want)
	}
	return resp.GetReservationId()
}

func (b budget) commit(wantReleased bool, id string, n uint64, entries ...string) {
	b.Helper()
	req := &kuadrant.CommitRequest{Domain: "shop", ReservationId: id, ActualAmount: n}
	for _, entry := range entries {
		req.Descriptors = append(req.Descriptors, descriptor(entry))
	}
	resp, err := b.Commit(b.Context(), req)
	if err != nil || resp.GetReservationReleased() != wantReleased {
		b.Fatalf("%d units of %v: %v %v, want released %t", n, entries, resp, err, wantReleased)
	}
}

// TestCheckAndReport: a check charges nothing, and a report charges what does not fit too.
func TestCheckAndReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := budgetLimit("candidate", 0)
		tried.Shadow = true
		b, _ := newBudgets(t, tried)
		for range 3 {
			b.check(ok, 100, "plain=a")
			b.check(over, 101, "plain=a")
			b.check(ok, 100, "candidate=a")
		}
		b.left(100, "plain=a")
		req := request("plain=a", "candidate=a", "user=root")
		req.HitsAddend = 60
		for _, left := range []uint32{40, 0} {
			resp, err := b.Report(t.Context(), req)
			if err != nil || resp.GetOverallCode() != ok ||
				resp.GetStatuses()[0].GetLimitRemaining() != left ||
				resp.GetStatuses()[1].GetLimitRemaining() != left {
				t.Errorf("%v %v, want %d left", resp, err, left)
			}
		}
		b.check(over, 1, "plain=a")
		b.check(ok, 1, "candidate=a") // a shadow refuses nothing
		if got := b.Stats(); got.Calls != 14 || got.OK != 10 || got.Over != 4 {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
		b.left(100, "plain=a")
	})
}

// TestReserveAndCommit: what one service holds, another one settles, once.
func TestReserveAndCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newBudgets(t)
		id := a.reserve(ok, 60, 0, "tokens=a")
		if got := b.reserve(over, 60, 0, "tokens=a"); got != "" {
			t.Errorf("the id of a refusal is %q", got)
		}
		b.check(over, 41, "tokens=a") // holds count for all calls
		b.left(40, "tokens=a")
		b.commit(true, id, 30, "tokens=a")
		a.left(70, "tokens=a")
		a.commit(false, id, 30, "tokens=a")
		b.commit(false, id, 50)
		a.left(70, "tokens=a")

		a.commit(true, a.reserve(ok, 70, 0, "tokens=a"), 0) // the id is enough
		a.left(70, "tokens=a")
		a.commit(true, a.reserve(ok, 70, 0, "tokens=a"), 90, "tokens=a")
		a.left(0, "tokens=a") // it used more than it held
		a.commit(false, "", 10, "tokens=b")
		a.left(90, "tokens=b")
	})
}

// TestReservationTimesOut: the units are free again after the ttl, which is bounded by the holds of
// the limit, and what was used is charged all the same.
func TestReservationTimesOut(t *testing.T) {
	for _, tt := range []struct{ ttl, least, most time.Duration }{
		{0, time.Minute, 68 * time.Second},
		{10 * time.Second, 10 * time.Second, 12 * time.Second},
		{time.Nanosecond, time.Minute / 16, time.Minute / 14},
		{math.MaxInt64, 16 * time.Minute, 18 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newBudgets(t)
			id := a.reserve(ok, 100, tt.ttl, "tokens=a")
			time.Sleep(tt.least - time.Millisecond)
			b.check(over, 1, "tokens=a")
			time.Sleep(tt.most - tt.least + time.Millisecond)
			other := b.reserve(ok, 100, 0, "tokens=a")
			b.commit(true, id, 40, "tokens=a")
			b.commit(false, id, 40, "tokens=a")
			a.commit(true, other, 1, "tokens=a")
			a.left(59, "tokens=a")
		})
	}
}

// TestReserveAmounts: an estimate above the limit holds all of it, and an amount of 0 asks whether
// a unit is free.
func TestReserveAmounts(t *testing.T) {
	calls := budgetLimit("calls", time.Minute)
	calls.Algorithm, calls.Rate.Units = "in-flight", 2
	a, _ := newBudgets(t, calls)
	for _, n := range []uint64{101, math.MaxInt64, math.MaxUint64} {
		id := a.reserve(ok, n, 0, "tokens=a")
		a.left(0, "tokens=a")
		a.reserve(over, 0, 0, "tokens=a")
		a.commit(true, id, 0)
	}
	if got := a.reserve(ok, 0, 0, "tokens=a"); got != "" {
		t.Errorf("the id of nothing is %q", got)
	}
	a.left(100, "tokens=a")

	var ids []string
	for range 2 {
		ids = append(ids, a.reserve(ok, 40, 0, "tokens=a,calls=a"))
	}
	a.reserve(over, 1, 0, "tokens=a,calls=a")         // a third call
	a.check(ok, 20, "tokens=a,calls=a")               // asks for no call
	a.commit(false, "unknown", 5, "tokens=a,calls=a") // ends no call
	a.reserve(over, 1, 0, "tokens=a,calls=a")
	a.commit(true, ids[0], 30, "tokens=a,calls=a")
	a.commit(true, a.reserve(ok, 20, 0, "tokens=a,calls=a"), 20)
	a.commit(true, ids[1], 40, "tokens=a,calls=a")
	a.left(5, "tokens=a")
}

// TestReserveWithoutHolds: without a limit that holds units, the calls check and report. A limit
// without holds beside one with them is charged what was asked for.
func TestReserveWithoutHolds(t *testing.T) {
	a, _ := newBudgets(t)
	for range 2 {
		if got := a.reserve(ok, 100, 0, "plain=a"); got != "" {
			t.Errorf("the id is %q", got)
		}
	}
	a.commit(false, "", 60, "plain=a")
	a.commit(false, "", 60, "plain=a")
	a.reserve(over, 1, 0, "plain=a")

	id := a.reserve(ok, 30, 0, "tokens=b", "plain=b")
	a.commit(true, id, 10, "tokens=b", "plain=b")
	a.left(90, "tokens=b")
	a.left(70, "plain=b")
	a.reserve(ok, 5, 0, "other=b")
	a.commit(false, "", 5, "other=b")
}

// TestUnknownReservation: an id that is none, or whose limit is not in force any more, charges as
// Report does.
func TestUnknownReservation(t *testing.T) {
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	before := newBudget(t, store, budgetLimit("gone", time.Minute))
	after := newBudget(t, store)
	id := before.reserve(ok, 60, 0, "gone=a,tokens=a")
	left := uint32(40)
	for _, id := range []string{
		"", "x", "\x00\xff", id[1:], strings.Repeat("A", 1<<20-100), id + "=", id,
	} {
		after.commit(false, id, 5, "tokens=a")
		left -= 5
		after.left(left, "tokens=a")
	}
	after.commit(false, "x", 0, "tokens=a")
	after.left(left, "tokens=a")
}

// TestInvalidCalls: what is wrong whatever the limits is an error, and charges nothing.
func TestInvalidCalls(t *testing.T) {
	a, _ := newBudgets(t)
	id := a.reserve(ok, 1, 0, "tokens=a")
	tokens := []*limitv3.RateLimitDescriptor{descriptor("tokens=a")}
	reserve := func(r *kuadrant.ReserveRequest) error {
		_, err := a.Reserve(t.Context(), r)
		return err
	}
	ttl := func(d *durationpb.Duration) error {
		return reserve(&kuadrant.ReserveRequest{
			Domain: "shop", Descriptors: tokens, Amount: 1, Ttl: d})
	}
	commit := func(r *kuadrant.CommitRequest) error {
		_, err := a.Commit(t.Context(), r)
		return err
	}
	_, check := a.CheckRateLimit(t.Context(), &rls.RateLimitRequest{Descriptors: tokens})
	_, report := a.Report(t.Context(), &rls.RateLimitRequest{Domain: "shop"})
	for name, err := range map[string]error{
		"check without a domain":     check,
		"report of nothing":          report,
		"reserve without a domain":   reserve(&kuadrant.ReserveRequest{Descriptors: tokens}),
		"reserve of nothing":         reserve(&kuadrant.ReserveRequest{Domain: "shop"}),
		"negative ttl":               ttl(durationpb.New(-1)),
		"ttl that is no duration":    ttl(&durationpb.Duration{Nanos: math.MaxInt32}),
		"ttl of more than 10⁴ years": ttl(&durationpb.Duration{Seconds: math.MaxInt64}),
		"commit without a domain":    commit(&kuadrant.CommitRequest{Descriptors: tokens}),
		"commit of nothing":          commit(&kuadrant.CommitRequest{Domain: "shop"}),
		"huge commit": commit(&kuadrant.CommitRequest{Domain: "shop", Descriptors: tokens,
			ReservationId: id, ActualAmount: math.MaxUint64}),
		"huge report": commit(&kuadrant.CommitRequest{Domain: "shop", Descriptors: tokens,
			ActualAmount: uint64(driver.MaxUnits) + 1}),
	} {
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := a.Stats(); got.Invalid != 11 {
		t.Errorf("%+v", got)
	}
	a.left(99, "tokens=a")
}

// TestKuadrantUndecided: without a store a call is undecided.
func TestKuadrantUndecided(t *testing.T) {
	a, _ := newBudgets(t)
	id := a.reserve(ok, 1, 0, "tokens=a")
	b := newBudget(t, down{driver.ErrUnavailable})
	_, check := b.CheckRateLimit(t.Context(), request("tokens=a"))
	_, report := b.Report(t.Context(), request("tokens=a"))
	_, reserve := b.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "shop", Amount: 1,
		Descriptors: []*limitv3.RateLimitDescriptor{descriptor("tokens=a")}})
	_, commit := b.Commit(t.Context(), &kuadrant.CommitRequest{ReservationId: id})
	for name, err := range map[string]error{
		"check": check, "report": report, "reserve": reserve, "commit": commit,
	} {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
