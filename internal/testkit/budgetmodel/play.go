package budgetmodel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// A Clock is the store's clock in µs. The zero Clock stands still: then no time may pass for the
// limits during the test. Otherwise timers must run on it too, as in package testing/synctest.
type Clock struct {
	Now     func() int64
	Advance func(time.Duration)
}

// SyntheticClock is that of package testing/synctest.
var SyntheticClock = Clock{func() int64 { return time.Now().UnixMicro() }, time.Sleep}

// game is the state of one history. It panics with a failure.
type game struct {
	ctx      context.Context
	rand     *rand.Rand
	key      string
	clients  []Client
	clock    Clock
	accounts [][]*account // by limiter
	open     []*pending
	steps    []string // last steps, for failures
}

type failure struct{ error }

// pending is a reservation that is not settled. It has a token, or real is not nil.
type pending struct {
	real   *ratelimit.Reservation
	client int // whose process it is in
	token  string
	id     uint64
	n      map[int]int64 // by limiter
	tried  map[int]int64 // of a Commit that has failed
	since  int64         // from then on it is renewed, as long as the line of its client is not cut
}

// Play makes random calls on key and compares each with the model. It returns how they differ.
func Play(
	ctx context.Context, seed uint64, key string, clock Clock, steps int, clients ...Client,
) (err error) {
	g := &game{
		ctx: ctx, rand: rand.New(rand.NewPCG(seed, 0)),
		key: key, clients: clients, clock: clock, accounts: clients[0].limits.accounts(),
	}
	if clock.Now == nil {
		g.clock.Now = func() int64 { return 1 }
	}
	for _, c := range clients {
		c.line.now = g.clock.Now
	}
	defer func() {
		failed, ok := recover().(failure)
		if ok {
			err = fmt.Errorf("seed %d: %w\nafter: %s", seed, failed.error,
				strings.Join(g.steps, "\n       "))
		}
		for _, p := range g.open { // ends the renewals
			if p.real != nil {
				g.clients[p.client].line.setCut(false)
				err = errors.Join(err, ignoring(p.real.Cancel(ctx), ratelimit.ErrNotHeld))
			}
		}
	}()
	for range steps {
		g.step()
		g.compare()
	}
	for _, a := range slices.Concat(g.accounts...) {
		g.must(a.check())
	}
	return nil
}

func ignoring(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

func (g *game) step() {
	c := g.client()
	switch p := g.rand.IntN(39); {
	case p < 3:
		g.allow(g.clients[c])
	case p < 6:
		g.take(g.clients[c])
	case p < 16 || len(g.open) == 0:
		g.reserve(c)
	case p < 24:
		g.settle(c)
	case p < 28:
		g.extend(c)
	case p < 31:
		g.passOn(c)
	case p < 32:
		g.reset(g.clients[c])
	case p < 34:
		g.cut()
	case g.clock.Advance != nil:
		g.advance()
	}
}

// client returns a client whose line is not cut: the first never is.
func (g *game) client() int {
	if i := g.rand.IntN(len(g.clients)); !g.clients[i].line.cut {
		return i
	}
	return 0
}

func (g *game) now() int64 { return g.clock.Now() }

// units returns some of the units of a limiter, mostly few.
func (g *game) units(l *ratelimit.Limiter) int64 {
	if g.rand.IntN(8) == 0 {
		return g.rand.Int64N(l.Max() + 1)
	}
	return g.rand.Int64N(l.Max()/4 + 1)
}

func (g *game) claims(c Client, n map[int]int64) (claims []ratelimit.Claim) {
	for i, l := range c.all() {
		if units, ok := n[i]; ok {
			claims = append(claims, ratelimit.Claim{Limiter: l, Key: g.key, N: units})
		}
	}
	return claims
}

// fits reports whether all limits admit n, which is held as id or taken.
func (g *game) fits(n map[int]int64, id uint64) bool {
	for i, units := range n {
		for _, a := range g.accounts[i] {
			if !a.fits(g.now(), max(units, 1), id) {
				return false
			}
		}
	}
	return true
}

func (g *game) each(n map[int]int64, do func(i int, a *account)) {
	for i := range n {
		for _, a := range g.accounts[i] {
			do(i, a)
		}
	}
}

func (g *game) allow(c Client) {
	n := map[int]int64{requests: g.units(c.Requests), tokens: g.units(c.Tokens)}
	if g.rand.IntN(2) == 0 {
		n[money] = g.units(c.Money)
	}
	want := g.fits(n, 0)
	g.note("allow %v: %t", n, want)
	results, err := ratelimit.AllowAll(g.ctx, g.claims(c, n)...)
	g.must(err)
	g.want(results[ratelimit.Binding(results)], want)
	if want {
		g.each(n, func(i int, a *account) { a.take(g.now(), n[i]) })
	}
}

// take takes or forces units of one limiter.
func (g *game) take(c Client) {
	i := g.rand.IntN(calls)
	l := c.all()[i]
	n := map[int]int64{i: max(1, g.units(l))}
	if g.rand.IntN(3) == 0 {
		g.note("force %v", n)
		res, err := l.Force(g.ctx, g.key, n[i])
		g.must(err)
		g.want(res, true)
		g.each(n, func(i int, a *account) { a.record(g.now(), n[i], 0) })
		return
	}
	want := g.fits(n, 0)
	g.note("take %v: %t", n, want)
	res, err := l.AllowN(g.ctx, g.key, n[i])
	g.must(err)
	g.want(res, want)
	if want {
		g.each(n, func(i int, a *account) { a.take(g.now(), n[i]) })
	}
}

func (g *game) reserve(client int) {
	c := g.clients[client]
	n := map[int]int64{tokens: g.units(c.Tokens)}
	for i, l := range c.all() {
		if g.rand.IntN(2) == 0 {
			n[i] = g.units(l)
		}
	}
	want := g.fits(n, 0)
	g.note("%d: reserve %v: %t", client, n, want)
	r, err := ratelimit.ReserveAll(g.ctx, g.claims(c, n)...)
	g.must(err)
	g.want(r.Result(), want)
	if !want {
		return
	}
	p := &pending{real: r, client: client, n: n}
	g.open = append(g.open, p)
	g.each(n, func(i int, a *account) {
		switch {
		case n[i] == 0:
		case i == requests:
			a.take(g.now(), n[i])
		default:
			p.id = c.line.lastID()
			a.hold(g.now(), n[i], p.id)
		}
	})
	delete(n, requests) // there is nothing to settle
}

// pick returns a reservation, resumed by client if it has a token. It is nil if its client is cut.
func (g *game) pick(client int) *pending {
	p := g.open[g.rand.IntN(len(g.open))]
	if p.real == nil {
		g.sure(p.id, g.clients[0].limits.Timeout*2/5) // when the next renewal comes
		r, err := ratelimit.Resume(p.token, g.clients[client].all()...)
		g.must(err)
		g.note("%d: resume %v", client, p.n)
		p.real, p.client = r, client
		p.since = g.now() + (g.clients[0].limits.Timeout * 2 / 5).Microseconds()
	}
	if g.clients[p.client].line.cut {
		return nil
	}
	return p
}

func (g *game) remove(p *pending) {
	g.open = slices.DeleteFunc(g.open, func(o *pending) bool { return o == p })
}

// used returns what a call may have used: less, or more than what it has reserved.
func (g *game) used(n map[int]int64) map[int]int64 {
	used := make(map[int]int64)
	for i, units := range n {
		if i != calls {
			used[i] = g.rand.Int64N(units + units/2 + 2)
		}
	}
	return used
}

// commit makes the call of Commit, or CommitAll, for what was used.
func (g *game) commit(p *pending, r *ratelimit.Reservation, used map[int]int64) error {
	if len(used) == 1 && g.rand.IntN(2) == 0 {
		return r.Commit(g.ctx, used[tokens])
	}
	return r.CommitAll(g.ctx, g.claims(g.clients[p.client], used)...)
}

// settle commits or cancels, or fails to if the line is cut. Sometimes another client does the
// same.
func (g *game) settle(client int) {
	p := g.open[g.rand.IntN(len(g.open))]
	if p.real != nil && g.clients[p.client].line.cut {
		used := g.used(p.n)
		g.note("%d: commit %v without the store", p.client, used)
		if err := g.commit(p, p.real, used); !errors.Is(err, ratelimit.ErrUnavailable) {
			g.must(fmt.Errorf("commit: %w, want ErrUnavailable", err))
		}
		p.tried = used
		return
	}
	if p = g.pick(client); p == nil {
		return
	}
	used, again := map[int]int64{tokens: 0}, (*ratelimit.Reservation)(nil)
	if _, ok := p.n[money]; ok {
		used[money] = 0
	}
	if p.token != "" && g.rand.IntN(2) == 0 {
		var err error
		again, err = ratelimit.Resume(p.token, g.clients[p.client].all()...)
		g.must(err)
	}
	var err error
	switch g.rand.IntN(4) {
	case 0:
		if p.tried != nil {
			used = p.tried
		}
		g.note("%d: cancel %v: %v", p.client, p.n, used)
		err = p.real.Cancel(g.ctx)
	case 1:
		for i, n := range p.n {
			used[i] = n
		}
		delete(used, calls)
		g.note("%d: commit %v", p.client, p.n)
		err = p.real.Commit(g.ctx)
	default:
		used = g.used(p.n)
		g.note("%d: commit %v of %v", p.client, used, p.n)
		err = g.commit(p, p.real, used)
	}
	g.wantHeld(err, g.settled(p, used))
	g.wantHeld(p.real.Commit(g.ctx), false)
	g.must(p.real.Cancel(g.ctx)) // does nothing
	if again != nil {
		g.wantHeld(g.commit(p, again, used), g.settled(p, used))
	}
	g.remove(p)
}

// settled settles p in the model, and reports whether all that was used was recorded.
func (g *game) settled(p *pending, used map[int]int64) (held bool) {
	held = true
	g.each(p.n, func(i int, a *account) {
		if a.settle(g.now(), used[i], p.id) < used[i] {
			held = false
		}
	})
	return held
}

func (g *game) wantHeld(err error, held bool) {
	switch {
	case held:
		g.must(err)
	case !errors.Is(err, ratelimit.ErrNotHeld):
		g.must(fmt.Errorf("got %w, want ErrNotHeld", err))
	}
}

func (g *game) extend(client int) {
	p := g.pick(client)
	if p == nil {
		return
	}
	c := g.clients[p.client]
	more, n := make(map[int]int64), make(map[int]int64)
	for i, units := range p.n {
		if i == calls || g.rand.IntN(4) == 0 {
			continue
		}
		more[i] = 1 + g.units(c.all()[i])
		if n[i] = units + more[i]; n[i] > c.all()[i].Max() {
			return
		}
	}
	if len(more) == 0 {
		return
	}
	want := g.fits(n, p.id)
	g.note("%d: extend %v by %v: %t", p.client, p.n, more, want)
	var res []driver.Result
	var err error
	if len(p.n) == 1 {
		res, err = p.real.Extend(g.ctx, more[tokens])
	} else {
		res, err = p.real.ExtendAll(g.ctx, g.claims(c, more)...)
	}
	g.must(err)
	g.want(res[ratelimit.Binding(res)], want)
	if !want {
		return
	}
	p.id = c.line.lastID()
	g.each(n, func(i int, a *account) { a.hold(g.now(), n[i], p.id) })
	for i := range n {
		p.n[i] = n[i]
	}
}

// passOn makes a token, which is resumed later or never.
func (g *game) passOn(client int) {
	p := g.pick(client)
	if p == nil {
		return
	}
	held := false
	g.each(p.n, func(i int, a *account) {
		held = held || p.n[i] > 0 && a.known(g.now(), p.id) != nil
	})
	if t := g.clients[0].limits.Timeout; g.rand.IntN(3) > 0 {
		keep := []time.Duration{0, t / 2, 4 * t}[g.rand.IntN(3)]
		g.note("%d: renew for %v: %t", p.client, keep, held)
		g.wantHeld(p.real.Renew(g.ctx, keep), held)
	}
	g.note("%d: token: %t", p.client, held)
	// Without units there is nothing to hold.
	if text, err := p.real.Token(); held || !errors.Is(err, ratelimit.ErrInvalid) {
		g.must(err)
		p.token, p.real, p.tried = text, nil, nil
	}
}

func (g *game) reset(c Client) {
	i := g.rand.IntN(len(g.accounts))
	g.note("reset limiter %d", i)
	g.must(c.all()[i].Reset(g.ctx, g.key))
	for _, a := range g.accounts[i] {
		g.must(a.check())
		a.reset()
	}
}

// cut cuts the line of a client, or repairs it: then its renewals come within a second.
func (g *game) cut() {
	if len(g.clients) == 1 {
		return
	}
	i := 1 + g.rand.IntN(len(g.clients)-1)
	l := g.clients[i].line
	if l.cut {
		g.note("repair the line of %d", i)
		for _, p := range g.open {
			if p.client == i && p.real != nil {
				g.sure(p.id, 2*time.Second)
				p.since = max(p.since, g.now()+2_000_000)
			}
		}
	} else {
		g.note("cut the line of %d", i)
	}
	l.setCut(!l.cut)
}

// advance lets time pass: mostly up to a Window or a time-out.
func (g *game) advance() {
	limits := g.clients[0].limits
	pauses := []time.Duration{limits.Tokens.Window, limits.Timeout, 2 * limits.Timeout}
	most := pauses[g.rand.IntN(3)]
	cut := slices.ContainsFunc(g.clients, func(c Client) bool { return c.line.cut })
	if !cut && g.rand.IntN(20) == 0 { // a line that is cut makes it try each second
		most = 30 * time.Hour
	}
	g.sleep(time.Duration(g.rand.Int64N(int64(most))).Truncate(time.Microsecond))
	g.sure(0, 0)
}

func (g *game) sleep(d time.Duration) {
	g.note("%v pass", d)
	g.clock.Advance(d)
	g.renew()
	for _, p := range g.open {
		if p.real == nil || g.clients[p.client].line.cut || g.now() < p.since {
			continue
		}
		for _, a := range slices.Concat(g.accounts...) {
			if h := a.known(g.now(), p.id); h != nil && !h.open(g.now()) {
				g.must(fmt.Errorf("the hold of %v under %v has timed out", p.n, a.limit))
			}
		}
	}
}

// sure lets time pass until it is known of all holds whether they have timed out, and of that of id
// also within soon.
func (g *game) sure(id uint64, soon time.Duration) {
	for again := g.clock.Advance != nil; again; {
		again = false
		for _, a := range slices.Concat(g.accounts...) {
			until := max(a.unsure(g.now(), 0, 0), a.unsure(g.now(), soon.Microseconds(), id))
			if until > 0 {
				again = true
				g.sleep(time.Duration(until-g.now()) * time.Microsecond)
			}
		}
	}
}

// renew makes the renewals in the model that the library has made.
func (g *game) renew() {
	var all []renewal
	for _, c := range g.clients {
		all = append(all, c.line.drain()...)
	}
	slices.SortStableFunc(all, func(a, b renewal) int { return cmp.Compare(a.at, b.at) })
	for _, r := range all {
		name := r.Algorithm.Limit().Name
		for _, a := range slices.Concat(g.accounts...) {
			if a.limit.Name != name {
				continue
			}
			if want := a.renew(r.at, r.ID, r.HoldTimeout); r.units != want {
				g.must(fmt.Errorf("a renewal of %v: %d units, want %d", a.limit, r.units, want))
			}
		}
	}
}

// compare compares what is left under each limit.
func (g *game) compare() {
	g.renew()
	nothing := map[int]int64{requests: 0, tokens: 0, money: 0, calls: 0}
	results, err := ratelimit.PeekAll(g.ctx, g.claims(g.clients[0], nothing)...)
	g.must(err)
	for i, a := range slices.Concat(g.accounts...) {
		if want := a.left(g.now()); results[i].Remaining != want {
			g.must(fmt.Errorf("%d units of %v are left, want %d", results[i].Remaining, a.limit,
				want))
		}
	}
}

func (g *game) note(format string, args ...any) {
	g.steps = append(g.steps, fmt.Sprintf(format, args...))
	if len(g.steps) > 20 {
		g.steps = g.steps[1:]
	}
}

func (g *game) want(res driver.Result, allowed bool) {
	if res.Allowed != allowed {
		g.must(fmt.Errorf("got %+v, want Allowed %t", res, allowed))
	}
}

func (g *game) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}
