package algorithm

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
)

// A call with one demand has a frame of its own, since that is most of them.
var (
	//go:embed frameone.lua
	oneSource string
	//go:embed framemany.lua
	manySource string
	//go:embed framewrite.lua
	writeSource string // part of both
)

// A Program is the text of a Lua script and its name in EVALSHA. It is the frame with the steps of certain algorithms, and the
// same for the same algorithms, whatever the demands.
type Program struct {
	Source string // Lua 5.1
	SHA    string // SHA-1 of Source in hexadecimal digits
}

// A Call builds one run of a [Program] and reads its reply. It is for those who write a store on a server that runs Lua: Begin, Add or AddSame for each
// group of demands, then send Program, Keys and Args and give the reply to Results. A Call may be used again after
// Begin, and by one goroutine at a time. The zero Call is ready for Begin.
type Call struct {
	keys    []string
	demands []callDemand
	groups  []int  // index in demands of each group's first
	located string // the reply for which demands know where their part is
	now     int64
	args    []string
	ints    []int64
	bytes   []byte

	scripts []ratelimit.Script // distinct, in order of Name
	built   []ratelimit.Script
	one     Program // of the scripts in built, for a single demand
	many    Program // and for several
}

// callDemand is a demand on its way to the server.
type callDemand struct {
	ratelimit.Demand
	key    int // index in keys
	script ratelimit.Script
	last   bool // of its group
	times  int  // equal takes that it stands for
	reply  int  // where its part of the reply begins
}

// Begin forgets what was added. now is the clock to run on, in µs since the Unix epoch: 0 for the server's own, which is what all but tests
// want.
func (c *Call) Begin(now int64) {
	clear(c.keys) // keys are users' data: keep none alive
	clear(c.demands)
	c.keys, c.demands, c.groups, c.scripts = c.keys[:0], c.demands[:0], c.groups[:0], c.scripts[:0]
	c.now, c.located = now, ""
}

// Add adds a group: demands that are all admitted, or none leaves a trace. keys[i] is the stored key of ds[i]; within a group they
// differ. Groups are independent and run in order. An error wraps [ratelimit.ErrNoScript], and nothing was added.
func (c *Call) Add(keys []string, ds []ratelimit.Demand) error {
	for i := range ds {
		if ds[i].Algorithm.Script().Source == "" {
			return fmt.Errorf("%w: %q", ratelimit.ErrNoScript, ds[i].Algorithm.Name())
		}
	}
	c.groups = append(c.groups, len(c.demands))
	before := c.keys // only the keys of other groups can come again
	for i := range ds {
		c.add(before, keys[i], callDemand{Demand: ds[i], script: ds[i].Algorithm.Script(), last: i == len(ds)-1, times: 1})
	}
	return nil
}

// AddSame adds one group of so many equal demands on one key. They are independent and run in order, each as if it were a group of its own;
// times is at least 1. If they are Takes and their script says [ratelimit.Script].Sums, the server runs the step three times at most for all of
// them, and a few times more where the clock or the resolution has just changed; else once for each.
//
// An error wraps [ratelimit.ErrNoScript] or [ratelimit.ErrInvalidDemand], and nothing was added.
func (c *Call) AddSame(key string, d ratelimit.Demand, times int) error {
	same := callDemand{Demand: d, script: d.Algorithm.Script(), last: true, times: 1}
	if same.script.Source == "" {
		return fmt.Errorf("%w: %q", ratelimit.ErrNoScript, d.Algorithm.Name())
	}
	if times < 1 {
		return fmt.Errorf("%w: %d times", ratelimit.ErrInvalidDemand, times)
	}
	c.groups = append(c.groups, len(c.demands))
	if d.Op == ratelimit.Take && same.script.Sums {
		same.times, times = times, 1
	}
	for range times {
		c.add(c.keys, key, same)
	}
	return nil
}

// add adds a demand whose key may be among before.
func (c *Call) add(before []string, key string, d callDemand) {
	if d.key = slices.Index(before, key); d.key < 0 {
		d.key = len(c.keys)
		c.keys = append(c.keys, key)
	}
	if at, found := c.index(d.script); !found {
		c.scripts = slices.Insert(c.scripts, at, d.script)
	}
	c.demands = append(c.demands, d)
	c.located = ""
}

// index returns where a script is, or belongs, in scripts.
func (c *Call) index(script ratelimit.Script) (at int, found bool) {
	return slices.BinarySearchFunc(c.scripts, script.Name, func(s ratelimit.Script, name string) int {
		return strings.Compare(s.Name, name)
	})
}

// Program returns the script to run.
func (c *Call) Program() Program {
	same := slices.EqualFunc(c.scripts, c.built, func(a, b ratelimit.Script) bool {
		return a.Name == b.Name && a.Source == b.Source
	})
	if !same {
		c.built = slices.Clone(c.scripts)
		c.one, c.many = Program{}, Program{}
	}
	program, frame := &c.many, manySource
	if len(c.demands) == 1 && c.demands[0].times == 1 {
		program, frame = &c.one, oneSource
	}
	if program.Source == "" {
		*program = newProgram(frame, c.built)
	}
	return *program
}

func newProgram(frame string, scripts []ratelimit.Script) Program {
	var steps, list strings.Builder
	for i, s := range scripts {
		fmt.Fprintf(&steps, "local step%d\ndo\n%s\nstep%[1]d = step\nend\n", i+1, s.Source)
		fmt.Fprintf(&list, "step%d,", i+1)
	}
	source := strings.NewReplacer(
		"--STEPS--\n", steps.String(),
		"--LIST--\n", "local steps = {"+list.String()+"}\n",
		"--WRITE--\n", writeSource,
	).Replace(frame)
	sum := sha1.Sum([]byte(source))
	return Program{Source: source, SHA: hex.EncodeToString(sum[:])}
}

// Keys returns the script's KEYS, each state once. The slice is good until Begin.
func (c *Call) Keys() []string { return c.keys }

// Args returns the script's ARGV, in binary. The slice is good until Begin.
func (c *Call) Args() []string {
	clear(c.args)
	c.args = c.args[:0]
	for i := range c.demands {
		d := &c.demands[i]
		step, _ := c.index(d.script)
		more := byte(1)
		if d.last {
			more = 0
		}
		b := appendInt(c.bytes[:0], c.now, 7)
		n, at := d.N, d.At
		switch d.Op {
		case ratelimit.Take:
			at = int64(d.times - 1)
		case ratelimit.Reset:
			n = 0 // it may be anything
		}
		b = appendInt(b, n<<3|int64(d.Op), 7)
		b = appendInt(b, stampOrZero(at), 7)
		b = appendInt(b, int64(d.key+1), 4)
		b = append(b, byte(step+1), more)
		c.ints = d.script.Args(c.ints[:0], d.Demand)
		for _, v := range c.ints {
			b = appendInt(b, v, 7)
		}
		c.bytes = b
		c.args = append(c.args, string(b))
	}
	return c.args
}

// stampOrZero returns 0, which is no record's stamp, for what a step in Lua cannot calculate with.
func stampOrZero(at int64) int64 {
	if at < 0 || at >= 1<<53 {
		return 0
	}
	return at
}

// appendInt appends the low n bytes of v, big-endian.
func appendInt(b []byte, v int64, n int) []byte {
	for n--; n >= 0; n-- {
		b = append(b, byte(v>>(8*n)))
	}
	return b
}

// The reply has for each demand four integers, of which remaining also says how it came out. That of one admitted demand alone has no
// RetryAfter. A demand that stands for several has one part or more of these, each after the number of those that it answers.
const (
	replyInt      = 7
	replySize     = 6 + 3*replyInt
	replyAdmitted = 6 + 2*replyInt

	replyRefused = 1 << 44
	replyCorrupt = 1 << 45
	replyWrote   = 1 << 46
)

// Results reads the answer of a group, counted from 0 in the order of Add and AddSame, from the script's reply. out has the length of the
// group. An error wraps [ratelimit.ErrCorruptState], or [ratelimit.ErrOutcomeUnknown] for a reply that is none of this script's. A state may
// turn out to be corrupt only after some of the equal demands of AddSame: those that were decided have their Result then, and
// the others the zero Result, whose Limit is 0.
func (c *Call) Results(reply string, group int, out []ratelimit.Result) (err error) {
	if len(c.demands) == 1 && len(reply) == replyAdmitted {
		var ok bool
		if out[0], ok = c.demands[0].result(reply); !ok {
			out[0] = ratelimit.Result{}
			return errForeign
		}
		return nil
	}
	if !c.locate(reply) {
		return fmt.Errorf("%w: the script replied %d bytes for %d demands", ratelimit.ErrOutcomeUnknown, len(reply), len(c.demands))
	}
	whole := out
	for i := c.groups[group]; len(out) > 0; i++ {
		d := &c.demands[i]
		for at, left := d.reply, d.times; left > 0; at += replySize {
			count := 1
			if d.times > 1 {
				count = int(replyValue(reply[at:][:replyInt]))
				at += replyInt
			}
			r := reply[at:][:replySize]
			var res ratelimit.Result
			if replyValue(r[:6])&replyCorrupt == 0 {
				var ok bool
				if res, ok = d.result(r); !ok {
					clear(whole)
					return errForeign
				}
			} else {
				err = ratelimit.ErrCorruptState
			}
			for j := range count {
				out[j] = res
				if res.Allowed && d.times > 1 {
					out[j].Remaining += int64(count-1-j) * d.N
				}
			}
			out, left = out[count:], left-count
		}
	}
	return err
}

// Wrote tells that the server wrote for a group that records nothing, a look or one that was refused, as it does after its clock has stepped
// back. Of other groups it tells nothing. Results has been called with reply.
func (c *Call) Wrote(reply string, group int) bool {
	if len(c.demands) == 1 && len(reply) == replyAdmitted {
		return replyValue(reply[:6])&replyWrote != 0
	}
	if len(reply) < replySize {
		return false
	}
	for i := c.groups[group]; ; i++ {
		d := &c.demands[i]
		for at, left := d.reply, d.times; left > 0; at += replySize {
			count := 1
			if d.times > 1 {
				count = int(replyValue(reply[at:][:replyInt]))
				at += replyInt
			}
			if replyValue(reply[at:][:6])&replyWrote != 0 {
				return true
			}
			left -= count
		}
		if d.last {
			return false
		}
	}
}

// errForeign is about a reply of the right length.
var errForeign = fmt.Errorf("%w: the script replied with numbers out of range", ratelimit.ErrOutcomeUnknown)

// result returns what four integers of the reply say of d, or three if it was admitted alone. ok is false if they are no step's: times that are
// negative, or more than a Duration holds.
func (d *callDemand) result(r string) (res ratelimit.Result, ok bool) {
	remaining, retry := replyValue(r[:6]), int64(0)
	reset, at := replyValue(r[len(r)-2*replyInt:][:replyInt]), replyValue(r[len(r)-replyInt:])
	if len(r) == replySize {
		retry = replyValue(r[6:][:replyInt])
	}
	return ratelimit.Result{
		Allowed:    remaining&replyRefused == 0,
		Limit:      d.Algorithm.Limit().Max,
		Remaining:  remaining &^ (replyRefused | replyWrote),
		RetryAfter: time.Duration(retry) * time.Microsecond,
		ResetAfter: time.Duration(reset) * time.Microsecond,
		At:         at,
	}, retry|reset|at <= max53 && remaining < 2*replyWrote
}

// locate finds each demand's part of a reply and reports whether it is a reply for these demands.
func (c *Call) locate(reply string) bool {
	if c.located != "" && c.located == reply {
		return true
	}
	at := 0
	for i := range c.demands {
		d := &c.demands[i]
		d.reply = at
		if d.times == 1 {
			at += replySize
			continue
		}
		for left := int64(d.times); left > 0; at += replyInt + replySize {
			if len(reply) < at+replyInt+replySize {
				return false
			}
			count := replyValue(reply[at:][:replyInt])
			if count < 1 || count > left {
				return false
			}
			left -= count
		}
	}
	if at != len(reply) {
		return false
	}
	c.located = reply
	return true
}

func replyValue(digits string) (v int64) {
	for _, c := range []byte(digits) {
		v = v<<8 | int64(c)
	}
	return v
}
