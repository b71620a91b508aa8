package scripts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// altered is an algorithm whose Lua step has a fault: old is replaced by new.
type altered struct {
	driver.Algorithm
	old, new string
}

func (a altered) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = a.Algorithm
	return a.Algorithm.Step(state, now, d)
}

func (a altered) Script() driver.Script {
	script := a.Algorithm.Script()
	args := script.Args
	script.Args = func(dst []int64, d driver.Demand) []int64 {
		d.Algorithm = a.Algorithm
		return args(dst, d)
	}
	script.Name = "altered " + script.Name
	script.Source = strings.ReplaceAll(script.Source, a.old, a.new)
	return script
}

// alteredHolder is altered for an algorithm with holds.
type alteredHolder struct {
	driver.Holder
	altered altered
}

func (a alteredHolder) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	return a.altered.Step(state, now, d)
}

func (a alteredHolder) Script() driver.Script { return a.altered.Script() }

// alter returns a with a fault.
func alter(a driver.Algorithm, old, new string) driver.Algorithm {
	if h, ok := a.(driver.Holder); ok {
		return alteredHolder{h, altered{a, old, new}}
	}
	return altered{a, old, new}
}

// tally is a Quota that also counts takes and forces, so its takes do not add up.
type tally struct{ Quota }

func (c tally) Name() string { return "tally1" }

func (c tally) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	count, inner := uint64(0), state
	if d.Op != driver.OpReset && len(state) > 0 {
		if len(state) != quotaSize+8 {
			return nil, -1, driver.Result{}
		}
		inner, count = state[:quotaSize:quotaSize], binary.BigEndian.Uint64(state[quotaSize:])
		if count>>48 != 0 {
			return nil, -1, driver.Result{}
		}
	}
	next, keep, res := c.Quota.Step(inner, now, d)
	if keep > 0 && len(next) > 0 {
		next = binary.BigEndian.AppendUint64(next, count+1)
	}
	return next, keep, res
}

func (c tally) Script() driver.Script {
	script := c.Quota.Script()
	script.Name = c.Name()
	script.Source = "local quota\ndo\n" + quotaSource + "\nquota = step\nend\n" + `
local function step(key, tail, now, op, n, at, args, pos)
  local count, inner = 0, tail
  if op ~= 3 and #tail > 0 then
    if #tail ~= 32 then return nil end
    inner, count = string.sub(tail, 1, 24), struct.unpack('>I8', tail, 25)
    if count >= 2 ^ 48 then return nil end
  end
  local allowed, remaining, retry, reset, time, us, state =
    quota(key, inner, now, op, n, at, args, pos)
  if us then state = state .. struct.pack('>I8', count + 1) end
  return allowed, remaining, retry, reset, time, us, state
end`
	return script
}

// TestCheckLuaRepeats: the seed of an error repeats it.
func TestCheckLuaRepeats(t *testing.T) {
	late := &conformance.Options{Algorithms: []func(driver.Limit) driver.Algorithm{
		func(l driver.Limit) driver.Algorithm {
			return alter(NewQuota(l), "allowed, retry = 0, first", "allowed, retry = 0, 7 + first")
		}}}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		eval := evalBy(tgt.Client(t))
		first := conformance.CheckLua(t.Context(), eval, late)
		if first == nil {
			t.Fatal("no error")
		}
		const variable = "RATELIMIT_CONFORMANCE_SEED"
		_, seed, _ := strings.Cut(first.Error(), variable+"=")
		t.Setenv(variable, strings.TrimSuffix(seed, ")"))
		if again := conformance.CheckLua(t.Context(), eval, late); again == nil ||
			again.Error() != first.Error() {
			t.Errorf("got %v, and with its seed %v", first, again)
		}
	})
}

// TestCheckLuaErrors: CheckLua returns the error of a server, of an algorithm without a script, and
// of one without a valid limit.
func TestCheckLuaErrors(t *testing.T) {
	down := errors.New("down")
	eval := func(context.Context, string, []string, []string) (string, error) { return "", down }
	check := func(a func(driver.Limit) driver.Algorithm) error {
		return conformance.CheckLua(t.Context(), eval,
			&conformance.Options{Algorithms: []func(driver.Limit) driver.Algorithm{a}})
	}
	quota := func(l driver.Limit) driver.Algorithm { return NewQuota(l) }
	if err := check(quota); !errors.Is(err, down) {
		t.Errorf("of a server that is down: %v", err)
	}
	if err := check(func(driver.Limit) driver.Algorithm {
		return NewQuota(driver.Limit{})
	}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("without a valid limit: %v", err)
	}
	if err := check(func(l driver.Limit) driver.Algorithm {
		return noScript{NewQuota(l)}
	}); !errors.Is(err, driver.ErrNoScript) {
		t.Errorf("without a script: %v", err)
	}
	eval = func(context.Context, string, []string, []string) (string, error) { return "cut", nil }
	if err := check(quota); err == nil {
		t.Error("no error for a reply that is cut off")
	}
}

type noScript struct{ driver.Algorithm }

func (noScript) Script() driver.Script { return driver.Script{} }

// otherScript is a Quota with one more arg, and with more in its Source.
type otherScript struct {
	Quota
	arg  int64
	text string
}

func (o otherScript) Script() driver.Script {
	script := o.Quota.Script()
	script.Source = o.text + script.Source
	script.Args = func(dst []int64, d driver.Demand) []int64 {
		return append(quotaArgs(dst, d), o.arg)
	}
	return script
}

// A luaFault is a fault of a Lua step: old is replaced by new. want is in the error of CheckLua, or
// is empty if there is no fault.
type luaFault struct{ old, new, want string }

// begin is a text in quota.lua before the decision.
const begin = "local first,"

var quotaFaults = map[string]luaFault{
	"no fault": {},
	"other bytes": {"struct.pack('>I8I8I8', first, last, used)",
		"struct.pack('>I8I8I8', first, window, used)", "left the state"},
	"a microsecond early": {"last - now, struct", "last - now - 1, struct", "returned the us"},
	"a microsecond late":  {"last - now, struct", "last - now + 1, struct", "returned the us"},
	"early after a change": {"if write then us,", "if write and #tail > 0 then\n" +
		"state = struct.pack('>I8I8I8', first, last, used)\nelseif write then us,", "expires in"},
	"late after a change": {"if write then us,",
		"if write and #tail == 24 and first == struct.unpack('>I8', tail)\n" +
			"and select(2, struct.unpack('>I8I8', tail)) >= window then\n" +
			"state = struct.pack('>I8I8I8', first, last, used)\nelseif write then us,",
		"later at most"},
	"never expires":      {"first + last - now, struct", "nil, struct", "without a time to live"},
	"at one microsecond": {"now - first >= ", "now - first > ", "the Lua step of"},
	"a peek writes": {"if write then", "if write or op == 1 and #tail > 0 then",
		"want nothing written"},
	"a refusal writes": {"if write then", "if write or allowed == 0 then", "want nothing written"},
	"14 digits": {"local allowed, retry", "first = tonumber(tostring(first))\nlocal allowed, retry",
		"the Lua step of"},
	"the Window ignored":   {"math.min(last, window)", "last", "the Lua step of"},
	"the Max ignored":      {begin, "max = math.max(max, 2)\n" + begin, "the Lua step of"},
	"a foreign state":      {"#tail ~= 24", "#tail < 24", "want keep -1"},
	"a number too large":   {" or used > 2 ^ 48", "", "want keep -1"},
	"a reset that forgets": {"#tail > 0 and '' or nil", "nil", "wrote nothing"},
	"a clock ahead":        {"first - now > window", "false", "the Lua step of"},
	"the time of a force": {begin, "if op == 2 and at > 0 then now = at end\n" + begin,
		"the Lua step of"},
	"a command": {begin, "redis.call('EXISTS', key)\n" + begin, "ran the command EXISTS"},
	"a command that writes": {begin, "redis.call('PEXPIRE', key, 1)\n" + begin,
		"ran the command PEXPIRE"},
	"another key": {begin, "redis.call('GETRANGE', key .. 2, 0, 1)\n" + begin,
		"ran the command GETRANGE"},
	"an error": {begin, "if n == 2 ^ 40 then error('large') end\n" + begin, "failed: "},
	"no time":  {"reset, now, us", "reset, nil, us", "failed: "},
}

// TestCheckLuaFinds: CheckLua finds each of these faults of a Lua step.
func TestCheckLuaFinds(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		eval := evalBy(tgt.Client(t))
		find := func(name string, of func(driver.Limit) driver.Algorithm, f luaFault) {
			t.Helper()
			source := of(driver.PerMinute("l", 1)).Script().Source
			if f.old != "" && !strings.Contains(source, f.old) {
				t.Errorf("%s: the step does not contain %q", name, f.old)
			}
			err := conformance.CheckLua(t.Context(), eval, &conformance.Options{
				Algorithms: []func(driver.Limit) driver.Algorithm{
					func(l driver.Limit) driver.Algorithm { return alter(of(l), f.old, f.new) }}})
			switch {
			case err == nil && f.want != "":
				t.Errorf("%s: not found", name)
			case err != nil && (f.want == "" || !strings.Contains(err.Error(), f.want)):
				t.Errorf("%s: got %v, want %q in it", name, err, f.want)
			}
		}
		quota := func(l driver.Limit) driver.Algorithm { return NewQuota(l) }
		for name, f := range quotaFaults {
			find(name, quota, f)
		}
		const doubles = "whole < 2 ^ 53"
		find("products in a bucket",
			func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l) },
			luaFault{doubles, "true", "the Lua step of"})
		find("products in a counter",
			func(l driver.Limit) driver.Algorithm { return algorithm.SlidingWindowCounter(l) },
			luaFault{doubles, "true", "the Lua step of"})
		find("a log that expires early",
			func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l) },
			luaFault{"us, same = base", "us, same = base - window", "expires in"})
		find("a log of many records that is written elsewhere",
			func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l) },
			luaFault{"us, nil, start, bytes", "us, nil, start + 12, bytes", "the Lua step of"})
		find("takes that do not add up",
			func(l driver.Limit) driver.Algorithm { return tally{NewQuota(l)} },
			luaFault{want: " times"})

		find("an arg out of range",
			func(l driver.Limit) driver.Algorithm { return otherScript{NewQuota(l), -1, ""} },
			luaFault{want: "has the arg -1"})
		find("a Source with parameters", func(l driver.Limit) driver.Algorithm {
			return otherScript{NewQuota(l), 0, fmt.Sprint("-- ", l, "\n")}
		}, luaFault{want: "want one Source"})

		budget := func(l driver.Limit) driver.Algorithm { return algorithm.Budget(NewQuota(l)) }
		find("a budget without a fault", budget, luaFault{})
		find("a hold that is settled twice", budget,
			luaFault{", op == (5) and held\n", ", nil\n", "in settle"})
		find("a hold that is renewed for less time", budget,
			luaFault{"if own and ends < deadline then ends = deadline end", "", "the Lua step of"})
		find("a peek that writes holds", budget, luaFault{"write = write or place or remove",
			"write = write or place or remove or op == 1", "want nothing written"})
	})
}
