package algorithm

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
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
	args    []string
	demands []demandRef
	groups  []int // index in demands of each group's first
	ints    []int64

	scripts []ratelimit.Script // distinct, in order of Name
	program Program            // of the scripts named in built
	built   []ratelimit.Script
}

// demandRef is what a demand leaves behind: its script, where the index of that stands in args, and what Results wants.
type demandRef struct {
	script string
	arg    int
	max    int64
}

// Begin forgets what was added. now is the clock to run on, in µs since the Unix epoch: 0 for the server's own, which is what all but tests
// want.
func (c *Call) Begin(now int64) {
	clear(c.keys) // keys are users' data: keep none alive
	c.keys, c.args = c.keys[:0], c.args[:0]
	c.demands, c.groups, c.scripts = c.demands[:0], c.groups[:0], c.scripts[:0]
	if now == 0 {
		c.args = append(c.args, "")
	} else {
		c.args = append(c.args, strconv.FormatInt(now, 10))
	}
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
	c.args = append(c.args, strconv.Itoa(len(ds)))
	for i := range ds {
		c.add(keys[i], ds[i])
	}
	return nil
}

func (c *Call) add(key string, d ratelimit.Demand) {
	script := d.Algorithm.Script()
	at, found := slices.BinarySearchFunc(c.scripts, script.Name, func(s ratelimit.Script, name string) int {
		return strings.Compare(s.Name, name)
	})
	if !found {
		c.scripts = slices.Insert(c.scripts, at, script)
	}
	index := slices.Index(c.keys, key)
	if index < 0 {
		index = len(c.keys)
		c.keys = append(c.keys, key)
	}
	c.ints = script.Args(c.ints[:0], d)
	c.args = append(c.args, strconv.Itoa(index+1), "", strconv.Itoa(int(d.Op)),
		strconv.FormatInt(d.N, 10), strconv.FormatInt(d.At, 10), strconv.Itoa(len(c.ints)))
	c.demands = append(c.demands, demandRef{script.Name, len(c.args) - 5, d.Algorithm.Limit().Max})
	for _, v := range c.ints {
		c.args = append(c.args, strconv.FormatInt(v, 10))
	}
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
	var b strings.Builder
	b.WriteString(opsSource)
	b.WriteString("local steps = {}\n")
	for i, s := range scripts {
		fmt.Fprintf(&b, "do\n%s\nsteps[%d] = step\nend\n", s.Source, i+1)
	}
	b.WriteString(frameSource)
	sum := sha1.Sum([]byte(b.String()))
	return Program{Source: b.String(), SHA: hex.EncodeToString(sum[:])}
}

// Keys returns the script's KEYS, each state once. The slice is good until Begin.
func (c *Call) Keys() []string { return c.keys }

// Args returns the script's ARGV. The slice is good until Begin.
func (c *Call) Args() []string {
	for _, d := range c.demands {
		at, _ := slices.BinarySearchFunc(c.scripts, d.script, func(s ratelimit.Script, name string) int {
			return strings.Compare(s.Name, name)
		})
		c.args[d.arg] = strconv.Itoa(at + 1)
	}
	return c.args
}

// replySize is the number of integers that answer one demand.
const replySize = 5

// Results reads the answer of a group, counted from 0 in the order of Add, from the script's reply. out has the length of the
// group. An error wraps [ratelimit.ErrCorruptState], or [ratelimit.ErrOutcomeUnknown] for a reply that is none of this script's.
func (c *Call) Results(reply []int64, group int, out []ratelimit.Result) error {
	if len(reply) != replySize*len(c.demands) {
		return fmt.Errorf("%w: the script replied %d integers for %d demands", ratelimit.ErrOutcomeUnknown, len(reply), len(c.demands))
	}
	first := c.groups[group]
	for i := range out {
		r := reply[replySize*(first+i):][:replySize]
		if r[0] < 0 {
			return ratelimit.ErrCorruptState
		}
		out[i] = ratelimit.Result{
			Allowed:    r[0] == 1,
			Limit:      c.demands[first+i].max,
			Remaining:  r[1],
			RetryAfter: time.Duration(r[2]) * time.Microsecond,
			ResetAfter: time.Duration(r[3]) * time.Microsecond,
			At:         r[4],
		}
	}
	return nil
}
