package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const saysReset = "OpReset deletes the state, holds included. It is always allowed."

var opRules = []rule{
	{name: "op/take", says: "OpTake admits and records N units, or refuses and records nothing.",
		check: checkTake},
	{name: "op/weights", says: "N is from 1 to MaxUnits; OpReset ignores it.",
		check: checkWeights},
	{name: "op/peek",
		says: "OpPeek returns what OpTake would, and records nothing. Remaining does not count " +
			"the N units.", check: checkPeek},
	{name: "op/force",
		says: "OpForce records N units whether they fit or not, and is always allowed. N may " +
			"exceed Max.", check: checkForce},
	{name: "op/reset", says: saysReset + " " + saysKeys, check: checkReset},
}

func checkTake(e *env) {
	key, a := e.key(), e.alg(5)
	for want := int64(4); want >= 0; want-- {
		if res := e.admit(take(key, a, 1)); res.Remaining != want {
			e.fatalf("Remaining is %d after the take, want %d", res.Remaining, want)
		}
	}
	e.refuse(take(key, a, 1))
	e.clock.add(window)
	e.admit(take(key, a, 4))
	e.refuse(take(key, a, 2))
	e.wantLeft(key, a, 1, "a refused take of 2")
	e.admit(take(key, a, 1))
}

func checkWeights(e *env) {
	key, a := e.key(), e.alg(10)
	e.admit(take(key, a, 7))
	e.wantLeft(key, a, 3, "a take of 7")
	e.refuse(take(key, a, 4))
	e.admit(take(key, a, 3))

	key, a = e.key(), e.alg(driver.MaxUnits)
	e.admit(take(key, a, driver.MaxUnits-1))
	e.wantLeft(key, a, 1, "a take of all but one unit")
	e.refuse(take(key, a, 2))
	e.admit(take(key, a, 1))
	e.refuse(take(key, a, driver.MaxUnits))
	e.admit(force(key, a, driver.MaxUnits))
	for _, n := range []int64{0, -1, driver.MaxUnits + 1} {
		d := reset(key, a)
		d.N = n
		e.admit(d)
	}
	e.admit(take(key, a, driver.MaxUnits))
}

func checkPeek(e *env) {
	key, a := e.key(), e.alg(5)
	for used := range int64(6) {
		for n := int64(1); n <= 5; n++ {
			peeked := e.do(peek(key, a, n))
			if peeked.Remaining != 5-used {
				e.fatalf("Remaining of a peek is %d with %d of 5 taken", peeked.Remaining, used)
			}
			if fits := n <= 5-used; peeked.Allowed != fits {
				e.fatalf("a peek for %d with %d of 5 taken has Allowed %t", n, used, peeked.Allowed)
			} else if fits {
				continue
			}
			if refused := e.refuse(take(key, a, n)); !same(refused, peeked) {
				e.fatalf("a peek for %d returned %+v and a take %+v", n, peeked, refused)
			}
		}
		if used < 5 {
			e.clock.add(time.Second)
			e.admit(take(key, a, 1))
		}
	}
}

func checkForce(e *env) {
	key, a := e.key(), e.alg(5)
	e.admit(force(key, a, 4))
	e.wantLeft(key, a, 1, "a forced take of 4")
	res := e.admit(force(key, a, 8))
	if res.Remaining != 0 || res.RetryAfter != 0 {
		e.fatalf("a forced take beyond the limit returned %+v", res)
	}
	if refused := e.refuse(take(key, a, 1)); refused.Remaining != 0 {
		e.fatalf("Remaining is %d beyond the limit", refused.Remaining)
	}
	e.clock.add(window)
	e.admit(take(key, a, 5))

	key, a = e.key(), e.algOf("l", 5)
	e.admit(force(key, a, 12))
	e.wantLeft(key, e.algOf("l", 20), 8, "a forced take of 12 under a limit of 5")
	e.refuse(take(key, a, 1))
	e.admit(force(key, a, driver.MaxUnits))
	e.wantLeft(key, e.algOf("l", driver.MaxUnits), 0,
		"a forced take of as many units as there can be")
	e.admit(reset(key, a))
}

func checkReset(e *env) {
	key, a := e.key(), e.alg(5)
	e.admit(reset(key, a))
	e.admit(take(key, a, 5))
	if res := e.admit(reset(key, a)); res.Remaining != 5 || res.ResetAfter != 0 {
		e.fatalf("a reset returned %+v", res)
	}
	e.wantLeft(key, a, 5, "a reset")
	e.admit(take(key, a, 5))
	e.refuse(take(key, a, 1))
	checkResetOfOne(e)
}

// patterns are keys that match others, where % or LIKE or a shell or a regular expression is at
// work. $ stands for a key that others begin with.
var patterns = []string{"$", "$*", "$?", "$[a-z]", "$[^z]", "{$,$a}", "*$*", "*", "?", "$%", "$_",
	"%$%", "%", "_", "$.*", "$.", "^$", ".*", "$|$a", "$' OR ''='", "$:", "$\x00", "$\\"}

// checkResetOfOne resets keys and limits that match others, which must stay as they are.
func checkResetOfOne(e *env) {
	id, a := e.key(), e.algOf("a", 9)
	others := []string{id + "a", id + "ab", id + ":a", "a" + id, id + "[a", id + id}
	unchanged := func(under, of string) {
		for _, key := range others {
			e.wantLeft(key, a, 8, fmt.Sprintf("a reset of %s %q", under, of))
		}
	}
	for _, key := range others {
		e.admit(take(key, a, 1))
	}
	for _, pattern := range patterns {
		key := strings.ReplaceAll(pattern, "$", id)
		e.admit(take(key, a, 1))
		e.admit(reset(key, a))
		unchanged("the key", key)
	}
	for _, name := range []string{"", "*", "?", "%", "_", "[a-z]", ".*", ".", "a*", "a%"} {
		for _, key := range others {
			e.admit(reset(key, e.algOf(name, 9)))
		}
		unchanged("the limit", name)
	}
}
