package budgetmodel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// A Client is one user of a store: a limiter for each budget. The last budget counts calls in
// flight. All clients have the same limits.
type Client []*ratelimit.Limiter

// A Clock is the store's clock. If Advance is nil, nothing may leave a window during the test.
type Clock struct {
	Now     func() int64
	Advance func(time.Duration)
}

// game is the state of one history.
type game struct {
	t       testing.TB
	ctx     context.Context
	rand    *rand.Rand
	key     string
	clients []Client
	clock   Clock
	budgets []budget
	open    []*pending
	leases  []held
	steps   []string // last steps, for failure messages
}

// pending is an unsettled reservation.
type pending struct {
	real  *ratelimit.Reservation
	model []*reservation // by budget
	n     []int64
}

// held is an unreleased lease.
type held struct {
	real  *ratelimit.Lease
	model charge
}

// Play makes steps random calls on key and fails t if the store and the model differ.
func Play(t testing.TB, seed uint64, key string, clock Clock, steps int, clients ...Client) {
	t.Helper()
	g := &game{
		t: t, ctx: t.Context(), rand: rand.New(rand.NewPCG(seed, 0)),
		key: key, clients: clients, clock: clock,
	}
	if clock.Now == nil {
		g.clock.Now = func() int64 { return 1 }
	}
	for _, l := range clients[0] {
		g.budgets = append(g.budgets, newBudget(l.Limits()))
	}
	for range steps {
		g.step()
		g.compare(seed)
	}
}

func (g *game) step() {
	c := g.clients[g.rand.IntN(len(g.clients))]
	switch p := g.rand.IntN(24); {
	case p < 2:
		g.allow(c)
	case p < 3:
		g.take(c)
	case p < 9:
		g.reserve(c)
	case p < 17 && len(g.open) > 0:
		g.settle(c)
	case p < 19 && len(g.open) > 0:
		g.extend()
	case p < 21:
		g.acquire(c)
	case p < 23 && len(g.leases) > 0:
		g.release()
	case g.clock.Advance != nil:
		limits := g.clients[0][g.rand.IntN(len(g.clients[0]))].Limits()
		d := time.Duration(g.rand.Int64N(int64(limits[0].Window))).Truncate(time.Microsecond)
		g.note("advance by %v", d)
		g.clock.Advance(d)
	}
}

// units returns random units for each budget, mostly few.
func (g *game) units(limiters []*ratelimit.Limiter) []int64 {
	n := make([]int64, len(limiters))
	for i, l := range limiters {
		n[i] = g.rand.Int64N(l.Max()/2 + 1)
		if g.rand.IntN(8) == 0 {
			n[i] = g.rand.Int64N(l.Max() + 1)
		}
	}
	return n
}

func (g *game) claims(c Client, n []int64) []ratelimit.Claim {
	claims := make([]ratelimit.Claim, len(n))
	for i := range n {
		claims[i] = ratelimit.Claim{Limiter: c[i], Key: g.key, N: n[i]}
	}
	return claims
}

// admits compares results with the model's and reports whether all claims were admitted.
func (g *game) admits(n []int64, results []driver.Result, err error) bool {
	g.t.Helper()
	if err != nil {
		g.fatalf("%v", err)
	}
	all := true
	for i, b := range g.budgets {
		want, got := b.admits(g.clock.Now(), n[i]), g.binding(i, &results)
		if got.Allowed != want {
			g.fatalf("claim %d: got %+v; want Allowed %t", i, got, want)
		}
		all = all && want
	}
	return all
}

// binding removes the results of budget i, the next, and returns the one that binds.
func (g *game) binding(i int, results *[]driver.Result) driver.Result {
	n := len(g.clients[0][i].Limits())
	own := (*results)[:n]
	*results = (*results)[n:]
	return own[ratelimit.Binding(own)]
}

func (g *game) allow(c Client) {
	n := g.units(c)
	n[len(n)-1] = 0 // a call in flight that is never released would block the history
	g.note("allow %v", n)
	results, err := ratelimit.AllowAll(g.ctx, g.claims(c, n)...)
	if g.admits(n, results, err) {
		for i, b := range g.budgets {
			b.charge(g.clock.Now(), n[i])
		}
	}
}

// take takes or forces units of one budget.
func (g *game) take(c Client) {
	i := g.rand.IntN(len(c) - 1)
	n := g.units(c)[i] + 1
	call, want := c[i].AllowN, g.budgets[i].admits(g.clock.Now(), n)
	if g.rand.IntN(4) == 0 {
		call, want = c[i].Force, true
	}
	if n > c[i].Max() {
		return
	}
	g.note("take %d of budget %d, allowed %t", n, i, want)
	res, err := call(g.ctx, g.key, n)
	if err != nil || res.Allowed != want {
		g.fatalf("got %+v, %v; want Allowed %t", res, err, want)
	}
	if want {
		g.budgets[i].charge(g.clock.Now(), n)
	}
}

func (g *game) acquire(c Client) {
	b := g.budgets[len(c)-1]
	want := b.admits(g.clock.Now(), 1)
	g.note("acquire, allowed %t", want)
	lease, err := c[len(c)-1].TryAcquire(g.ctx, g.key)
	if err != nil || lease.Allowed() != want {
		g.fatalf("got %+v, %v; want Allowed %t", lease, err, want)
	}
	if want {
		g.leases = append(g.leases, held{lease, b.charge(g.clock.Now(), 1)})
	}
}

func (g *game) release() {
	i := g.rand.IntN(len(g.leases))
	h := g.leases[i]
	g.leases = append(g.leases[:i], g.leases[i+1:]...)
	g.note("release")
	for range 2 { // the second call does nothing
		if err := h.real.Release(g.ctx); err != nil {
			g.fatalf("%v", err)
		}
	}
	h.model.giveBack(1)
}

func (g *game) reserve(c Client) {
	n := g.units(c)
	g.note("reserve %v", n)
	r, err := ratelimit.ReserveAll(g.ctx, g.claims(c, n)...)
	if err != nil {
		g.fatalf("%v", err)
	}
	if !g.admits(n, r.Results(), nil) {
		return
	}
	p := &pending{real: r, n: n}
	for i, b := range g.budgets {
		p.model = append(p.model, &reservation{
			budget: b, held: i == len(g.budgets)-1,
			charges: []charge{b.charge(g.clock.Now(), n[i])},
		})
	}
	g.open = append(g.open, p)
}

// settle commits or cancels a reservation, sometimes through another client.
func (g *game) settle(c Client) {
	i := g.rand.IntN(len(g.open))
	p := g.open[i]
	g.open = append(g.open[:i], g.open[i+1:]...)
	r := p.real
	if g.rand.IntN(3) == 0 {
		text, err := r.Token()
		if err != nil {
			g.fatalf("Token: %v", err)
		}
		if r, err = ratelimit.Resume(text, c...); err != nil {
			g.fatalf("Resume: %v", err)
		}
	}
	used := make([]int64, len(p.n))
	switch g.rand.IntN(4) {
	case 0:
		g.note("cancel %v", p.n)
		if err := r.Cancel(g.ctx); err != nil {
			g.fatalf("%v", err)
		}
	case 1:
		copy(used, p.n)
		g.note("commit %v", p.n)
		if err := r.Commit(g.ctx); err != nil {
			g.fatalf("%v", err)
		}
	default:
		for i, n := range p.n {
			used[i] = g.rand.Int64N(n + n/2 + 2)
		}
		g.note("commit %v of %v", used, p.n)
		if err := r.Commit(g.ctx, used...); err != nil {
			g.fatalf("%v", err)
		}
	}
	for i, m := range p.model {
		m.settle(g.clock.Now(), used[i])
	}
	if err := r.Cancel(g.ctx); err != nil { // must do nothing
		g.fatalf("%v", err)
	}
}

func (g *game) extend() {
	p := g.open[g.rand.IntN(len(g.open))]
	more := g.units(g.clients[0])
	if g.rand.IntN(2) == 0 {
		more[g.rand.IntN(len(more))] = 0
	}
	g.note("extend %v by %v", p.n, more)
	res, err := p.real.Extend(g.ctx, more...)
	if err != nil {
		g.fatalf("%v", err)
	}
	want := true
	for i, b := range g.budgets {
		want = want && (more[i] == 0 || b.admits(g.clock.Now(), more[i]))
	}
	if allowed := res[ratelimit.Binding(res)].Allowed; allowed != want {
		g.fatalf("got %+v; want Allowed %t", res, want)
	}
	if want {
		for i, b := range g.budgets {
			p.n[i] += more[i]
			p.model[i].charges = append(p.model[i].charges, b.charge(g.clock.Now(), more[i]))
		}
	}
}

// compare compares what is left of each budget.
func (g *game) compare(seed uint64) {
	g.t.Helper()
	claims := g.claims(g.clients[0], make([]int64, len(g.budgets)))
	results, err := ratelimit.PeekAll(g.ctx, claims...)
	if err != nil {
		g.fatalf("PeekAll: %v", err)
	}
	for i, b := range g.budgets {
		left := g.binding(i, &results).Remaining
		if want := b.left(g.clock.Now()); left != want {
			g.fatalf("seed %d: %d units are left of budget %d; want %d", seed, left,
				i, want)
		}
	}
}

func (g *game) note(format string, args ...any) {
	g.steps = append(g.steps, fmt.Sprintf(format, args...))
	if len(g.steps) > 12 {
		g.steps = g.steps[1:]
	}
}

func (g *game) fatalf(format string, args ...any) {
	g.t.Helper()
	g.t.Fatalf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(g.steps, "\n       "))
}
