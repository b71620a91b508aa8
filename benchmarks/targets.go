package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A target is a bound on the median of a cell or, if over is set, of its quotient by that cell in
// the same round.
type target struct {
	what   string
	value  cell
	over   *cell
	atMost float64 // upper bound; unused if least is set
	least  float64
}

// perReference bounds this module relative to another entry in the same case.
func perReference(what, subject, metric, column, reference string, atMost float64) target {
	return target{what: what, value: cell{subject, metric, column, ours},
		over: &cell{subject, metric, column, reference}, atMost: atMost}
}

// alone bounds the command time of this module without batching.
func alone(what, column string, over cell, atMost float64) target {
	over.Subject, over.Metric = "commands", "time"
	return target{what: what, value: cell{"commands", "time", column, oursAlone}, over: &over,
		atMost: atMost}
}

// absolute bounds a value of this module.
func absolute(what, subject, metric, column string, atMost float64) target {
	return target{what: what, value: cell{subject, metric, column, ours}, atMost: atMost}
}

var targets = append([]target{
	absolute("most admitted ÷ limit, memory", "exact-memory", "worst", "aimed and random", 1),
	absolute("wrong refusals, memory", "exact-memory", "wrong", "aimed and random", 0),

	perReference("one hot key, admitted", "inprocess", "time", "hot admitted, 1 CPU", xTime, 0.70),
	perReference("one hot key, admitted, 2 CPUs", "inprocess", "time", "hot admitted, 2 CPUs",
		xTime, 0.70),
	perReference("one hot key, refused", "inprocess", "time", "hot refused, 1 CPU", xTime, 0.60),
	perReference("one hot key, refused, 2 CPUs", "inprocess", "time", "hot refused, 2 CPUs",
		xTime, 0.60),
	perReference("100k keys uniform, 2 CPUs", "inprocess", "time", "100k uniform, 2 CPUs",
		xTime, 0.80),
	perReference("100k keys zipf, 2 CPUs", "inprocess", "time", "100k zipf, 2 CPUs", xTime, 0.80),
	perReference("100k growing histories, uniform, 2 CPUs", "growing", "time",
		"uniform", xTime, 1.0),
	perReference("100k growing histories, zipf, 2 CPUs", "growing", "time", "zipf", xTime, 1.0),
	perReference("two limits, one hot key, admitted", "together", "time",
		"hot admitted, 1 CPU", xTime, 3),
	perReference("two limits, one hot key, refused", "together", "time", "hot refused, 1 CPU",
		xTime, 3.5),
	perReference("two limits, 100k keys uniform, 2 CPUs", "together", "time",
		"100k uniform, 2 CPUs", xTime, 1.5),
	absolute("allocations, two limits, refused", "together", "allocations",
		"hot refused, 1 CPU", 0),
	absolute("allocations, hot admitted", "inprocess", "allocations", "hot admitted, 1 CPU", 0),
	absolute("allocations, hot refused", "inprocess", "allocations", "hot refused, 1 CPU", 0),
	absolute("heap per key, 5 requests at 100/min", "heap", "heap", "sparse", 190),
	absolute("heap per key, saturated at 1000/min", "heap", "heap", "saturated", 14_500),
	absolute("heap per key, saturated, Resolution = Window/100", "heap", "heap",
		"saturated, coarse", 1_638),

	perReference("command time, limit 100, admitted ÷ zset", "commands", "time",
		"100 admitted", zset, 0.70),
	perReference("command time, limit 100, admitted ÷ redis_rate", "commands", "time",
		"100 admitted", redisRate, 0.85),
	alone("command time, limit 100, admitted alone ÷ zset", "100 admitted",
		cell{Case: "100 admitted", Entry: zset}, 0.70),
	alone("command time, limit 100, admitted alone ÷ redis_rate", "100 admitted",
		cell{Case: "100 admitted", Entry: redisRate}, 0.85),
	alone("command time, limit 10,000, admitted alone ÷ zset", "10000 admitted",
		cell{Case: "10000 admitted", Entry: zset}, 1.0),
	alone("command time, limit 10,000 ÷ limit 10, admitted alone", "10000 admitted",
		cell{Case: "10 admitted", Entry: oursAlone}, 1.3),
	perReference("command time, limit 100, refused ÷ zset+ra", "commands", "time", "100 refused",
		zsetRetry, 0.75),
	perReference("command time, limit 10,000, admitted ÷ zset", "commands", "time",
		"10000 admitted", zset, 1.0),
	{
		what:  "command time, limit 10,000 ÷ ours at limit 10",
		value: cell{"commands", "time", "10000 admitted", ours},
		over:  &cell{"commands", "time", "10 admitted", ours}, atMost: 1.3,
	},
	{
		what:  "command time, 10,000 units ÷ 1 unit",
		value: cell{"weights", "time", "10000", ours}, over: &cell{"weights", "time", "1", ours},
		atMost: 1.1,
	},
	{
		what:  "bytes of memory per decision, 10,000 units ÷ 1 unit",
		value: cell{"weights", "bytes", "10000", ours}, over: &cell{"weights", "bytes", "1", ours},
		atMost: 1,
	},
	absolute("round trips per decision", "commands", "commands", "100 admitted", 1),
	absolute("bytes per key at limit 5", "memory", "worst", "5", 170),
	absolute("bytes per key at limit 100", "memory", "worst", "100", 3_300),
	absolute("bytes per key at limit 1000", "memory", "worst", "1000", 30_000),
	absolute("bytes per key at limit 10,000", "memory", "worst", "10000", 300_000),
	absolute("replication bytes per decision at limit 10,000", "replication", "bytes",
		"10000 admitted", 300),
}, slices.Concat(budgetTargets(), clientTargets(), cachedTargets(), edgeTargets())...)

// clientTargets are the targets of this module through each client library.
func clientTargets() []target {
	var ts []target
	for _, entry := range slices.Concat(oursOnServers, cachedRefusals) {
		for _, t := range []target{
			{what: "most admitted ÷ limit, %s", value: cell{Metric: "worst"}, atMost: 1},
			{what: "wrong refusals, %s", value: cell{Metric: "wrong"}},
			{what: "admitted in a storm ÷ limit, %s, two clients",
				value: cell{Metric: "storm"}, atMost: 1},
			{what: "admitted in a storm ÷ limit, %s, two processes",
				value: cell{Metric: "two processes"}, atMost: 1},
			{what: "share of calls that failed, %s", value: cell{Metric: "errors"}},
		} {
			t.what = fmt.Sprintf(t.what, onServer(entry))
			t.value = cell{"exact-redis", t.value.Metric, "aimed and random", entry}
			ts = append(ts, t)
		}
	}
	for _, entry := range oursOnServers {
		pipelined := 2.3
		if entry == ours {
			pipelined = 2.2
		}
		ts = append(ts,
			atLeast(entry, manyLoad, 1, 0.95), atLeast(entry, manyLoad, 64, pipelined),
			atLeast(entry, manyLoad, 512, 4),
			atLeast(entry, hotLoad, 512, 12),
		)
	}
	for _, entry := range cachedRefusals {
		ts = append(ts, atLeast(entry, refusedLoad, 64, 100), target{
			what: fmt.Sprintf("commands per decision, %s, %s", onServer(entry),
				loadCase(refusedLoad, 64)),
			value: cell{"load", "commands", loadCase(refusedLoad, 64), entry},
		})
	}
	return ts
}

// onServer returns the name of an entry of this module in targets.
func onServer(entry string) string {
	if client, ok := strings.CutPrefix(entry, ours+", "); ok {
		return client
	}
	return "go-redis"
}

// atLeast is a lower bound on decisions/s of an entry of this module relative to the sorted set.
func atLeast(entry, load string, callers int, least float64) target {
	column := loadCase(load, callers)
	return target{
		what:  fmt.Sprintf("decisions/s, %s, %s ÷ zset", onServer(entry), column),
		value: cell{"load", "rate", column, entry}, over: &cell{"load", "rate", column, zset},
		least: least,
	}
}

// A verdict is a target with the measured value.
type verdict struct {
	Subject  string
	What     string
	Measured number
	Range    [2]number
	Target   string
	Holds    bool
}

// judge returns the verdicts of the targets that were measured.
func (r *results) judge(ts []target) []verdict {
	var vs []verdict
	for _, t := range ts {
		values := r.values[t.value]
		if t.over != nil {
			values = quotients(values, r.values[*t.over])
		}
		s := summarize(values)
		if math.IsNaN(s.Median) {
			continue
		}
		v := verdict{Subject: t.value.Subject, What: t.what, Measured: round5(s.Median),
			Range: [2]number{round5(s.Min), round5(s.Max)}}
		if t.least > 0 {
			v.Target, v.Holds = "≥ "+number(t.least).String(), s.Median >= t.least
		} else {
			v.Target, v.Holds = "≤ "+number(t.atMost).String(), s.Median <= t.atMost
		}
		vs = append(vs, v)
	}
	return vs
}

// cachedTargets bound the cost of the cache of refusals when everything is admitted, and what it
// saves when several limits refuse.
func cachedTargets() (ts []target) {
	for i, cached := range cachedRefusals {
		without := []string{oursRueidis, oursValkey}[i]
		client := onServer(without)
		ts = append(ts,
			target{
				what: fmt.Sprintf("command time with cached refusals ÷ without, %s, %s",
					client, allAdmitted),
				value: cell{"cached", "time", allAdmitted, cached},
				over:  &cell{"cached", "time", allAdmitted, without}, atMost: 1.1,
			},
			target{
				what: fmt.Sprintf("decisions/s with cached refusals ÷ without, %s, %s",
					client, allAdmitted),
				value: cell{"cached", "rate", allAdmitted, cached},
				over:  &cell{"cached", "rate", allAdmitted, without}, least: 0.95,
			},
			target{
				what: fmt.Sprintf("decisions/s with cached refusals ÷ zset of one limit, %s, %s",
					client, refusedByTwo),
				value: cell{"cached", "rate", refusedByTwo, cached},
				over:  &cell{"cached", "rate", refusedByTwo, zset}, least: 100,
			},
			target{
				what: fmt.Sprintf("commands per decision with cached refusals, %s, %s",
					client, refusedByTwo),
				value: cell{"cached", "commands", refusedByTwo, cached},
			},
		)
	}
	return ts
}
