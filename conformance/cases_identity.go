package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/truewindow/ratelimit/driver"
)

var identityRules = []rule{
	{name: "identity/parameters", says: saysIdentity, check: checkParameters},
	{name: "identity/limit-names", says: saysIdentity, check: checkLimitNames},
	{name: "identity/algorithm-names", says: saysIdentity, check: checkAlgorithmNames},
	{name: "identity/joined-names", says: saysIdentity + " " + saysKeys, check: checkJoinedNames},
	{name: "identity/adversarial-keys", says: saysKeys, check: checkAdversarialKeys},
	{name: "identity/no-key-in-errors", says: saysKeys, check: checkNoKeyInErrors},
}

func checkParameters(e *env) {
	key, five := e.key(), e.algOf("l", 5)
	e.admit(take(key, five, 3))
	for _, newAlgorithm := range e.algorithms {
		for _, w := range []time.Duration{window, window + 7*time.Microsecond, 6 * window} {
			wider := newAlgorithm(driver.Limit{Name: "l", Max: 10, Window: w})
			if wider.Name() == five.Name() {
				e.wantLeft(key, wider, 7, "three were taken under other parameters")
			}
		}
	}
	e.refuse(take(key, e.algOf("l", 3), 1))
	e.admit(take(key, e.algOf("l", 10), 1))
	e.wantLeft(key, five, 1, "one more was taken under a larger Max")
	e.clock.add(window / 2)
	e.admit(take(key, e.algorithms[0](driver.Limit{Name: "l", Max: 5, Window: 6 * window}), 1))
	e.refuse(take(key, five, 1))
}

func checkLimitNames(e *env) {
	key := e.key()
	names := []string{"", "a", "b", "aa", "A", window.String() + "x", strings.Repeat("a", 64),
		"{a}", "a}", "{", "%61", "a:b", ":", "*", "a/", "log3"}
	for n := range 64 { // each is cut to the one before it, at either end
		names = append(names, strings.Repeat("n", n+1))
	}
	for i, name := range names {
		a := e.algOf(name, 1000)
		e.wantLeft(key, a, 1000, "units were taken under other limits")
		e.admit(take(key, a, int64(i)+1))
	}
	for i, name := range names {
		e.wantLeft(key, e.algOf(name, 1000), 999-int64(i), "some were taken under this limit")
	}
	e.admit(reset(key, e.algOf("a", 1000)))
	e.wantLeft(key, e.algOf("a", 1000), 1000, "a reset")
	e.wantLeft(key, e.algOf("b", 1000), 997, "the reset of another limit")
}

func checkAlgorithmNames(e *env) {
	key, a := e.key(), e.alg(5)
	b := renamed{a, a.Name() + "x"}
	e.admit(take(key, a, 5))
	e.wantLeft(key, b, 5, "all were taken under an algorithm of another name")
	e.admit(take(key, b, 2))
	e.refuse(take(key, a, 1))
	e.admit(reset(key, a))
	e.wantLeft(key, b, 3, "the state of the other algorithm was reset")
	for _, n := range []int{16, 32, 63, 64, 127, 128, 255, 256, 1024} {
		b := renamed{a, strings.Repeat("n", n)}
		e.wantLeft(key, b, 5, "units were taken under algorithms whose names are shorter")
		e.admit(take(key, b, 1))
	}
}

// A triple is a key and the names of its limit and its algorithm.
type triple [3]string

// checkJoinedNames takes the only unit of pairs of identities that are equal when their parts are
// put together, in any order, with any separator, or after their lengths.
func checkJoinedNames(e *env) {
	const limit = 1 // the part that has a bound, and may be empty
	var pairs [][2]triple
	for x := range 3 {
		for y := range 3 {
			if x == y {
				continue
			}
			add := func(x1, y1, x2, y2, third string) {
				var pair [2]triple
				pair[0][x], pair[0][y], pair[0][3-x-y] = x1, y1, third
				pair[1][x], pair[1][y], pair[1][3-x-y] = x2, y2, third
				pairs = append(pairs, pair)
			}
			// third returns a name that no other pair has.
			third := func() string { return e.prefix + strconv.Itoa(len(pairs)) }
			for _, sep := range separators() {
				add("a", "b"+sep+"c", "a"+sep+"b", "c", third())
				between := sep + third() + sep
				add("a", "b"+between+"c", "a"+between+"b", "c", third())
				if x == limit {
					add("", "b"+sep+"a", "b", "a", third())
				} else if y == limit {
					add("a"+sep+"b", "", "a", "b", third())
				}
			}
			add("1", "bbbbbbbbbbbc", "bbbbbbbbbbb", "c", third())
			add("1", "bbbbbbbbb1c", "11bbbbbbbbb", "c", third())
		}
	}
	e.together(16, func(g int) error {
		for i := g; i < len(pairs); i += 16 {
			for _, id := range pairs[i] {
				a := renamed{e.algOf(id[limit], 1), id[2]}
				if a.Limit().Validate() != nil {
					break
				}
				if res, err := e.store.Take(e.ctx, take(id[0], a, 1)); err != nil {
					return err
				} else if !res.Allowed {
					return fmt.Errorf("the keys, limits and algorithms %q share a state", pairs[i])
				}
			}
		}
		return nil
	})
}

// separators returns what may stand between two parts of a name.
func separators() []string {
	seps := []string{"", "::", "}:", "}{", "][", "--", "__", "//"}
	for c := range byte(0x80) {
		if r := rune(c); !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			seps = append(seps, string(r))
		}
	}
	return seps
}

// adversarial are keys that a careless encoding confuses with each other or cannot hold.
func adversarial() []string {
	long := strings.Repeat("k", 1<<16)
	return []string{
		"a", "b", "A", "ab", "a ", " a", "a\n", "a\r\n", "\ta", "a\x00", "\x00a", "\x00",
		"\x00\x00", "\x7f", "\xff", "\xfe\xff", "\xc0\x80", "é", "e\u0301",
		"{", "}", "{}", "{a}", "{a", "a}", "}{", "{{a}}", "{}a", "a{}", "%", "%%", "%7B", "%7b",
		"{a}:b", "%00", "a%00", "\\x00", "\\", "\"", "'",
		":", "a:", ":a", "a:b", "a:b:c", "a|b", "a/b", "a,b", "a;b", "*", "?", "[a]", "a*", "$1",
		"KEYS[1]", "0", "-1", "nil", "EVAL", "\r\nFLUSHALL\r\n",
		"ratelimit:", "ratelimit:{a}", "log3", "a:log3", "a:l:log3", "l:log3", "l", "#", "sha1:",
		"sha256:a", "h:a", "l:a",
		long, long + "k", long[1:], long[:1<<16-1] + "j", strings.Repeat("{", 1<<12),
		strings.Repeat("%", 1<<12), strings.Repeat("\x00", 300), strings.Repeat("\x00", 301),
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65),
		strings.Repeat("a", 128), strings.Repeat("a", 200), strings.Repeat("a", 256),
		strings.Repeat("a", 257), strings.Repeat("a", 512),
	}
}

func checkAdversarialKeys(e *env) {
	const most = int64(1) << 30
	id := e.key()
	var ds []driver.Demand
	for _, key := range adversarial() {
		ds = append(ds, take(key+id, e.algOf("l", most), 1), take(id+key, e.algOf("l", most), 1))
	}
	for i := range ds {
		ds[i].N = int64(i) + 1
		e.admit(ds[i])
	}
	for _, d := range ds {
		e.wantLeft(d.Key, d.Algorithm, most-d.N,
			"one take, and takes of other sizes under similar keys and limits")
	}
}

func checkNoKeyInErrors(e *env) {
	const secret = "s3cret-of-a-user"
	key := secret + e.key()
	ended, cancel := context.WithCancel(e.ctx)
	cancel()
	a := e.alg(5)
	e.vandalize(key, a)
	var errs []error
	for _, d := range []driver.Demand{take(key, a, 6), take(key, nil, 1), take(key, a, 0),
		take(key, e.alg(0), 1), {Key: key, Algorithm: a, Op: 99, N: 1}, take(key, a, 1)} {
		_, err := e.store.Take(e.ctx, d)
		errs = append(errs, err,
			e.store.TakeAll(e.ctx, []driver.Demand{d, d}, make([]driver.Result, 2)))
	}
	_, err := e.store.Take(ended, take(key, a, 1))
	errs = append(errs, err)
	errs = append(errs, e.hangUp(secret+e.key(), e.alg(driver.MaxUnits))...)
	if close := e.harness.Close; close != nil {
		if err := close(); err != nil {
			e.fatalf("Close: %w", err)
		}
		_, err := e.store.Take(e.ctx, take(key, a, 1))
		errs = append(errs, err)
	}
	for err := range allErrors(errs) {
		if strings.Contains(err.Error(), secret) {
			e.fatalf("an error contains the key: %q", err)
		}
	}
}

// hangUp makes calls whose contexts end at any time while they last, and returns their errors.
func (e *env) hangUp(key string, a driver.Algorithm) []error {
	const goroutines, each = 16, 16
	errs := make([]error, goroutines*each)
	spread := e.spreadOf(goroutines, key, a)
	e.together(goroutines, func(g int) error {
		for i := range each {
			end := &endsWhenSeen{Context: e.ctx, done: make(chan struct{}), err: context.Canceled}
			ctx, cancel := context.Context(end), func() {}
			within := spread * time.Duration((g*37+i*101)%(goroutines*each)) / (goroutines * each)
			switch i % 4 {
			case 1:
				end.err = context.DeadlineExceeded
			case 2:
				ctx, cancel = context.WithTimeout(e.ctx, within)
			case 3:
				ctx, cancel = context.WithCancel(e.ctx)
				time.AfterFunc(within, cancel)
			}
			d, err := take(key, a, 1), &errs[g*each+i]
			if i%8 < 5 {
				_, *err = e.store.Take(ctx, d)
			} else {
				*err = e.store.TakeAll(ctx, []driver.Demand{d, take(key+"-", a, 1)},
					make([]driver.Result, 2))
			}
			cancel()
		}
		return nil
	})
	return errs
}

// endsWhenSeen is a context that ends after its first Err, with which every call begins.
type endsWhenSeen struct {
	context.Context
	mu   sync.Mutex
	seen bool
	done chan struct{}
	err  error
}

func (c *endsWhenSeen) Done() <-chan struct{} { return c.done }

func (c *endsWhenSeen) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen {
		return c.err
	}
	c.seen = true
	close(c.done)
	return nil
}

// allErrors yields the errors and what they wrap, which a log may print as well.
func allErrors(errs []error) func(yield func(error) bool) {
	return func(yield func(error) bool) {
		for len(errs) > 0 {
			err := errs[0]
			errs = errs[1:]
			if err == nil {
				continue
			}
			if !yield(err) {
				return
			}
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				errs = append(errs, joined.Unwrap()...)
			} else {
				errs = append(errs, errors.Unwrap(err))
			}
		}
	}
}
