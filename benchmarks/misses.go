package main

import "strings"

// boundedBy says what bounds the missed targets whose names begin with a text. memory.md and
// scripts.md of docs/internals say what was tried.
var boundedBy = []struct{ target, by string }{
	{"one hot key",
		"reading the clock, the lock of a shard and the step, each of which an exact log needs"},
	{"100k keys", "finding the key: its entry and its records are in no cache of the processor"},
	{"100k growing histories", "finding the key, 26 % of a profile, and new arrays for longer " +
		"logs, 13 % with the garbage collection"},
	{"two limits, 100k keys", "two entries for a decision, each in no cache of the processor"},
	{"command time, limit 10,000 ÷", "the size of the log, by little"},
	{"command time, limit 10,000", "two SETRANGE an admission, of the record and of the trailer"},
	{"command time, 10,000 units", "the noise of the machine: the script does the same for any " +
		"number of units"},
	{"command time, reserve", "a second call, and the search for the record that it settles"},
	{"command time, three claims", "a state and a step for each claim, and the check of each " +
		"before the first is written"},
	{"command time with cached refusals", "the noise of the machine: no command is for the cache"},
	{"command time", "what EVALSHA costs any script; by instructions, which the noise of a " +
		"machine does not change, the quotient is 0.69 to the sorted set, 0.99 to redis_rate and " +
		"0.68 where refused"},
	{"decisions/s with cached refusals", "the noise of the machine: no command is for the cache"},
	{"decisions/s", "processor time of the client, which has the server's cores: a call is " +
		"handed to a second thread, so that callers can leave and calls travel together"},
	{"heap a key", "the records of the log"},
	{"HTTP middleware, two limits, ns", "the decision, two steps of each log, 41 % of a profile " +
		"with the limiter, and the memory of a request, 17 % with the garbage collection"},
}

// bound returns what bounds a missed target, or a dash.
func bound(what string) string {
	for _, b := range boundedBy {
		if strings.HasPrefix(what, b.target) {
			return b.by
		}
	}
	return "–"
}
