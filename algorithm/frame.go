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

//go:embed frame.lua
var frameSource string

// opsSource gives the steps and the frame the values of ratelimit.Op.
const opsSource = "local TAKE, LOOK, FORCE, GIVEBACK, RESET = 0, 1, 2, 3, 4\n"

// A Program is the text of a Lua script and its name in EVALSHA. It is the frame with the steps of certain algorithms, and the
// same for the same algorithms, whatever the demands.
type Program struct {
	Source string // Lua 5.1
	SHA    string // SHA-1 of Source in hexadecimal digits
}

// A Call builds one run of a [Program] and reads its reply. It is for those who write a store on a server that runs Lua: Begin, Add for each
// group of demands, then send Program, Keys and Args and give the reply to Results. A Call may be used again after
// Begin, and by one goroutine at a time. The zero Call is ready for Begin.
type Call struct {
	keys    []string
	demands []callDemand
	groups  []int // index in demands of each group's first
	now     int64
	args    []string
	ints    []int64
	bytes   []byte

	scripts []ratelimit.Script // distinct, in order of Name
	program Program            // of the scripts in built
	built   []ratelimit.Script
}

// callDemand is a demand on its way to the server.
type callDemand struct {
	ratelimit.Demand
	key    int // index in keys
	script ratelimit.Script
	last   bool // of its group
}

// Begin forgets what was added. now is the clock to run on, in µs since the Unix epoch: 0 for the server's own, which is what all but tests
// want.
func (c *Call) Begin(now int64) {
	clear(c.keys) // keys are users' data: keep none alive
	clear(c.demands)
	c.keys, c.demands, c.groups, c.scripts = c.keys[:0], c.demands[:0], c.groups[:0], c.scripts[:0]
	c.now = now
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
		d := callDemand{Demand: ds[i], script: ds[i].Algorithm.Script(), last: i == len(ds)-1}
		if d.key = slices.Index(before, keys[i]); d.key < 0 {
			d.key = len(c.keys)
			c.keys = append(c.keys, keys[i])
		}
		if at, found := c.index(d.script); !found {
			c.scripts = slices.Insert(c.scripts, at, d.script)
		}
		c.demands = append(c.demands, d)
	}
	return nil
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
		c.program = newProgram(c.built)
	}
	return c.program
}

func newProgram(scripts []ratelimit.Script) Program {
	var steps, list strings.Builder
	for i, s := range scripts {
		fmt.Fprintf(&steps, "local step%d\ndo\n%s\nstep%[1]d = step\nend\n", i+1, s.Source)
		fmt.Fprintf(&list, "step%d,", i+1)
	}
	source := opsSource + strings.NewReplacer(
		"--STEPS--\n", steps.String(),
		"--LIST--\n", "local steps = {"+list.String()+"}\n",
	).Replace(frameSource)
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
		b = appendInt(b, int64(d.key+1), 4)
		b = append(b, byte(step+1), byte(d.Op))
		b = appendInt(b, d.N, 6)
		b = appendInt(b, stampOrZero(d.At), 7)
		b = append(b, more)
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

// The reply has for each demand a byte and four integers.
const (
	replyInt  = 7
	replySize = 1 + 4*replyInt

	replyAdmitted = 1
	replyCorrupt  = 2
)

// Results reads the answer of a group, counted from 0 in the order of Add, from the script's reply. out has the length of the
// group. An error wraps [ratelimit.ErrCorruptState], or [ratelimit.ErrOutcomeUnknown] for a reply that is none of this script's.
func (c *Call) Results(reply string, group int, out []ratelimit.Result) error {
	if len(reply) != replySize*len(c.demands) {
		return fmt.Errorf("%w: the script replied %d bytes for %d demands", ratelimit.ErrOutcomeUnknown, len(reply), len(c.demands))
	}
	first := c.groups[group]
	for i := range out {
		r := reply[replySize*(first+i):][:replySize]
		if r[0] == replyCorrupt {
			return ratelimit.ErrCorruptState
		}
		out[i] = ratelimit.Result{
			Allowed:    r[0] == replyAdmitted,
			Limit:      c.demands[first+i].Algorithm.Limit().Max,
			Remaining:  replyValue(r, 0),
			RetryAfter: time.Duration(replyValue(r, 1)) * time.Microsecond,
			ResetAfter: time.Duration(replyValue(r, 2)) * time.Microsecond,
			At:         replyValue(r, 3),
		}
	}
	return nil
}

func replyValue(r string, i int) (v int64) {
	for _, c := range []byte(r[1+i*replyInt:][:replyInt]) {
		v = v<<8 | int64(c)
	}
	return v
}
