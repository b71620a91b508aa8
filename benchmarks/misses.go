package main

import "strings"

// byCallers is what limits refusals from the cache.
const byCallers = "processor time of the callers, which get cached refusals without the server; " +
	"a faster server speeds up only the sorted set"

// boundedBy says what limits the missed targets whose names begin with a text. memory.md and
// scripts.md in docs/internals say what was tried.
var boundedBy = []struct{ target, by string }{
	{"one hot key",
		"reading the clock, locking a shard and running the step, all of which an exact log needs"},
	{"100k keys", "looking up the key: its entry and records are not in the processor's caches"},
	{"100k growing histories", "looking up the key, 26 % of a profile, and larger arrays for " +
		"growing logs, 13 % with garbage collection"},
	{"two limits, 100k keys", "two entries per decision, neither in the processor's caches"},
	{"command time, limit 10,000 ÷", "the size of the log, slightly"},
	{"command time, limit 10,000", "two SETRANGE per admission, for the record and the trailer"},
	{"command time, 10,000 units", "noise of the machine: the script does the same for any " +
		"number of units"},
	{"command time, reserve", "a second call, and the search for the record that it settles"},
	{"command time, three claims", "a state and a step for each claim, and the check of each " +
		"before the first write"},
	{"command time with cached refusals", "noise of the machine: the cache sends no commands here"},
	{"command time", "the fixed cost of EVALSHA; in instructions, which do not vary with the " +
		"load of the machine, the quotients are 0.69 (zset), 0.99 (redis_rate) and, for " +
		"refusals, 0.68 (zset+ra)"},
	{"decisions/s with cached refusals ÷ zset", byCallers},
	{"decisions/s with cached refusals", "noise of the machine: the cache sends no commands here"},
	{"decisions/s, rueidis, refusals cached", byCallers},
	{"decisions/s, valkey-go, refusals cached", byCallers},
	{"decisions/s", "processor time of the client, which shares the server's cores: each call is " +
		"handed to a second thread, so that callers can leave and calls are batched"},
	{"heap per key", "the records of the log"},
	{"HTTP middleware, two limits, ns", "the decision with two steps per log, 41 % of a " +
		"profile including the limiter, and allocations, 17 % with garbage collection"},
}

// bound returns what limits a missed target, or a dash.
func bound(what string) string {
	for _, b := range boundedBy {
		if strings.HasPrefix(what, b.target) {
			return b.by
		}
	}
	return "–"
}
