package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	saysLength = "A store accepts keys of any length. If its server bounds the length of a key, " +
		"the store keeps longer keys as hashes."
	saysRoom = "A store that has no room for a new state returns ErrCapacity. To make room, a " +
		"store forgets only states that have run out."
)

var keyRules = []rule{
	{name: "identity/many-keys", says: saysIdentity + " " + saysKeys + " " + saysExpiry + " " +
		saysRoom, check: checkManyStates},
	{name: "identity/hashed-keys", says: saysIdentity + " " + saysKeys, check: checkHashedKeys},
	{name: "identity/long-keys", says: saysKeys + " " + saysLength, check: checkLongKeys},
	{name: "identity/every-byte", says: saysKeys, check: checkEveryByte},
	{name: "identity/similar-keys", says: saysKeys, check: checkSimilarKeys},
}

// manyKeys is so large that with a probability of 99.9 % two keys have the same random hash of 32
// bits.
const manyKeys = 250_000

// population is a number of keys of which each has taken the one unit of its limit.
type population struct {
	*env
	prefix    string
	algorithm driver.Algorithm
	together  bool // by TakeAll
	began     time.Time
	budget    time.Duration
	taken     []bool // by the number of a group of keys
	full      atomic.Bool
}

// group is the number of keys of one TakeAll.
const group = 100

// checkManyStates takes the only unit of as many keys as it can in a few seconds. A refusal shows
// that a key shares a state with another. At the end the first keys, and some of the others, must
// still be refused.
func checkManyStates(e *env) {
	keys, budget := manyKeys, e.atMost(10*time.Second, time.Minute)
	if e.full {
		keys *= 4
	}
	p := &population{
		env: e, prefix: e.key() + "-", began: time.Now(), budget: budget,
		taken: make([]bool, keys/group),
		// The states expire soon, so that they need not be reset. The case must end before they do.
		algorithm: e.algorithms[0](driver.Limit{Max: 1, Window: budget + watchdog}),
		together:  !e.lacks("takeall") && !e.lacks("takeall-keys"),
	}
	const first = 50 // groups
	p.take(0, first)
	p.wantTaken(0, first)
	p.take(first, len(p.taken))
	p.wantTaken(0, first)
	p.wantTaken(len(p.taken)-first, len(p.taken))
	for range first {
		g := e.rand.IntN(len(p.taken))
		p.wantTaken(g, g+1)
	}
}

// lacks reports whether a group of rules is excepted.
func (e *env) lacks(group string) bool {
	_, ok := e.except[group]
	return ok
}

// key returns the i-th key.
func (p *population) key(i int) string { return p.prefix + scatter(uint64(i)) }

// scatter returns eight characters that look random and are different for each i below 2^40.
func scatter(i uint64) string {
	const mask = 1<<40 - 1
	i = (i ^ i>>20) * 0x1ce4e5b9bf58476d & mask
	i = (i ^ i>>20) * 0x133111eb94d049bb & mask
	s := strconv.FormatUint(i^i>>20, 36)
	return strings.Repeat("0", 8-len(s)) + s
}

// take takes the units of groups of keys, until there is no time for more, or no room in the store.
func (p *population) take(from, to int) {
	var next atomic.Int64
	next.Store(int64(from))
	goroutines := 32
	if !p.together {
		goroutines = 256
	}
	p.env.together(goroutines, func(int) error {
		ds, results := make([]driver.Demand, group), make([]driver.Result, group)
		for !p.full.Load() {
			g := int(next.Add(1)) - 1
			if g >= to || from > 0 && p.late(g) {
				break
			}
			err := p.ask(g, driver.OpTake, ds, results)
			tooSlow := errors.Is(err, context.DeadlineExceeded) && g > 0
			if errors.Is(err, driver.ErrCapacity) || tooSlow {
				p.full.Store(true)
				break
			}
			if err != nil {
				return err
			}
			for _, res := range results {
				if !res.Allowed {
					return fmt.Errorf("the first take of a key was refused after about %d other "+
						"keys were used: %+v", g*group, res)
				}
			}
			p.taken[g] = true
		}
		return nil
	})
	if from == 0 && !p.taken[0] {
		p.fatalf("a new store has no room for %d keys", group)
	}
}

// late reports whether there is no time for another group. It gives up early if the store is too
// slow for all keys.
func (p *population) late(g int) bool {
	spent := time.Since(p.began)
	return spent > p.budget || spent > p.budget*2/5 && g < len(p.taken)*2/5
}

// wantTaken peeks at groups of keys whose units have been taken.
func (p *population) wantTaken(from, to int) {
	ds, results := make([]driver.Demand, group), make([]driver.Result, group)
	for g := from; g < to; g++ {
		if !p.taken[g] {
			continue
		}
		if time.Since(p.began) > p.budget+watchdog/2 {
			return // servers may soon forget the states
		}
		if err := p.ask(g, driver.OpPeek, ds,
			results); errors.Is(err, context.DeadlineExceeded) {
			return
		} else if err != nil {
			p.fatalf("a peek at %d keys: %w", group, err)
		}
		for _, res := range results {
			if res.Remaining != 0 {
				p.fatalf("after other keys were used, a key whose only unit was taken has "+
					"%d left", res.Remaining)
			}
		}
	}
}

// ask makes a demand for one unit of each key of a group.
func (p *population) ask(
	g int, op driver.Op, ds []driver.Demand, results []driver.Result,
) (err error) {
	for i := range ds {
		ds[i] = driver.Demand{Key: p.key(g*group + i), Algorithm: p.algorithm, Op: op, N: 1}
	}
	if p.together {
		return p.store.TakeAll(p.ctx, ds, results)
	}
	for i := 0; i < group && err == nil; i++ {
		results[i], err = p.store.Take(p.ctx, ds[i])
	}
	return err
}

// checkHashedKeys takes the only unit of each of two keys that collide under a hash.
func checkHashedKeys(e *env) {
	prefix := e.key()
	for i, c := range slices.Concat(linear, found) {
		keys := c.keys
		if i < len(linear) {
			keys = [2]string{prefix + keys[0], prefix + keys[1]}
		}
		// Another run or another collision may use one of the keys.
		a := e.algOf(e.prefix+strconv.Itoa(i), 1)
		for _, key := range keys {
			if res := e.do(take(key, a, 1)); !res.Allowed {
				e.fatalf("two keys that collide under %s share a state", c.hash)
			}
		}
		for _, key := range keys {
			e.refuse(take(key, a, 1))
		}
	}
}

// checkLongKeys uses long keys that cannot be compressed and that differ in one byte, or in length.
func checkLongKeys(e *env) {
	const most = int64(1) << 30
	var ds []driver.Demand
	for _, length := range []int{1 << 10, 2700, 1 << 12, 8200, 1 << 14, 1 << 15, 1 << 17, 1 << 20} {
		key := []byte(e.key())
		for len(key) < length {
			key = append(key, byte(e.rand.Uint32()))
		}
		add := func(key []byte) {
			ds = append(ds, take(string(key), e.alg(most), int64(len(ds))+1))
		}
		add(key)
		add(key[:length-1])
		for _, i := range []int{length / 2, length - 1} {
			key[i]++
			add(key)
			key[i]--
		}
	}
	for _, d := range ds {
		res, err := e.store.Take(e.ctx, d)
		if err != nil || res.Remaining != most-d.N {
			e.fatalf("the first take of a key of %d random bytes returned %+v and the error "+
				"%v, want %d left", len(d.Key), res, err, most-d.N)
		}
	}
	for _, d := range ds {
		e.wantLeft(d.Key, d.Algorithm, most-d.N,
			fmt.Sprintf("one take, and takes under other keys of about %d random bytes",
				len(d.Key)))
	}
}

// checkEveryByte uses keys that differ in one byte at either end, for each value of the byte, and
// in what encloses them.
func checkEveryByte(e *env) {
	id, a := e.key(), e.alg(1)
	keys := []string{id}
	for b := range 256 {
		c := string([]byte{byte(b)})
		keys = append(keys, id+c, c+id)
	}
	for _, pair := range []string{"\"\"", "''", "``", "()", "[]", "{}", "<>", "%%", "$$", "//"} {
		keys = append(keys, pair[:1]+id+pair[1:])
	}
	for _, key := range keys {
		if res := e.do(take(key, a, 1)); !res.Allowed {
			e.fatalf("the key %q shares a state with one that lacks, or has, a byte at an end", key)
		}
	}
	for _, key := range keys {
		e.refuse(take(key, a, 1))
	}
}

// similar are groups of keys that people, file systems, parsers of numbers or Unicode treat as
// equal.
var similar = [][]string{
	{"é", "e\u0301", "e", "É", "E\u0301", "è"},
	{"ﬁ", "fi"}, {"ａ", "a"}, {"①", "1"}, {"²", "2"}, {"ß", "ss", "ẞ", "SS"}, {"ſ", "s", "S"},
	{"\u212a", "K", "k"}, {"\u2126", "Ω", "ω"}, {"İ", "I", "i", "ı"}, {"Σ", "σ", "ς"},
	{"Ǆ", "ǅ", "ǆ"},
	{"a", "a\u200b", "a\u200d", "\ufeffa", "a\u00ad", "а", "a\u0000"},
	{"a b", "a\u00a0b", "a  b", "a\tb", "a+b", "a%20b"},
	{"1", "01", "1.0", "1e0", "+1", "0x1", "1 ", "١", "true"},
	{"0", "-0", "00", "false", "null", "NULL", "nil"},
	{"9007199254740993", "9007199254740992", "9007199254740993.0"},
	{"1e999", "1e998", "Infinity", "NaN"},
	{"a/b", "a//b", "a/./b", "a/c/../b", "a/b/", "/a/b", "a\\b"},
	{"10.0.0.1", "10.0.1", "10.1", "010.0.0.1"},
	{"::1", "0:0:0:0:0:0:0:1", "[::1]"}, {"a@b", "A@b", "a@B", "a@b."}, {"x\r\ny", "x\ny", "x\ry"},
	{"\"a\"", "'a'", "a", "`a`"},
}

// checkSimilarKeys takes the only unit of each key.
func checkSimilarKeys(e *env) {
	a := e.alg(1)
	for i, keys := range similar {
		id := strconv.Itoa(i) + e.key()
		for _, key := range keys {
			if res := e.do(take(id+key, a, 1)); !res.Allowed {
				e.fatalf("the key %q shares a state with one of %q", key, keys)
			}
		}
		for _, key := range keys {
			e.refuse(take(id+key, a, 1))
		}
	}
}
