package lua

import (
	"cmp"
	"slices"
	"sync"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// A server keeps each script that it has run, mostly until it restarts. If programs of several
// steps had no more than they need, calls of k algorithms would run 2^k of them. So they have more,
// which cost a call next to nothing:
//
//   - of the algorithms of this module, in the order of library, all up to the last that is needed;
//   - if others are needed, all others that this process knows, in the order of their names, so
//     that processes agree in the end.
//
// That is k-1 programs of several steps if all k algorithms are of this module, whatever processes
// call. With m others, whose steps have become known, there are k+1 more; and while they become
// known, at most as many for each of them in each process.

// maxOthers bounds the others that a process knows.
const maxOthers = 64

// library returns the scripts of the algorithms of this module. Those that are used most come
// first, and those without holds, so that most programs are short.
var library = sync.OnceValue(func() (scripts []driver.Script) {
	for _, a := range algorithms() {
		scripts = append(scripts, textOf(a.Script()))
	}
	return scripts
})

// algorithms returns one of each kind in this module.
func algorithms() []driver.Algorithm {
	var limit driver.Limit
	all := []driver.Algorithm{
		algorithm.SlidingLog(limit), algorithm.GCRA(limit), algorithm.FixedWindow(limit),
		algorithm.SlidingWindowCounter(limit), algorithm.Monthly("", 0), algorithm.Blocking("", 0),
	}
	plain := all
	all = append(all, algorithm.InFlight("", 0))
	for _, a := range plain {
		all = append(all, algorithm.Budget(a))
	}
	return all
}

// A set is the scripts of a program.
type set struct {
	scripts   []driver.Script
	one, many func() Program // for a single demand and for several
}

func newSet(scripts []driver.Script) *set {
	program := func(f *frame) func() Program {
		return sync.OnceValue(func() Program { return newProgram(f, scripts) })
	}
	return &set{scripts: scripts, one: program(oneFrame), many: program(manyFrame)}
}

// known is what this process knows of programs of several scripts.
var known struct {
	sync.Mutex
	// The scripts that are not in library and have run in such a program. One that has not may not
	// compile, and then nothing in its program runs.
	others []driver.Script
	// The sets, by the number of scripts from library: without others, and with all of them.
	plain, mixed map[int]*set
}

// together returns the set for several scripts, and those of them that are not known.
func together(scripts []driver.Script) (of *set, unknown []driver.Script) {
	most, rest := 0, []driver.Script(nil)
	for _, s := range scripts {
		if i := indexOf(library(), s); i >= 0 {
			most = max(most, i+1)
		} else {
			rest = append(rest, textOf(s))
		}
	}
	known.Lock()
	defer known.Unlock()
	sets, all := &known.plain, slices.Clip(library()[:most])
	if rest != nil {
		unknown = slices.DeleteFunc(rest, func(s driver.Script) bool {
			return indexOf(known.others, s) >= 0
		})
		sets, all = &known.mixed, append(all, merge(known.others, unknown)...)
	}
	if len(unknown) > 0 {
		return newSet(all), unknown
	}
	if *sets == nil {
		*sets = make(map[int]*set)
	}
	if (*sets)[most] == nil {
		(*sets)[most] = newSet(all)
	}
	return (*sets)[most], nil
}

// learn makes scripts known, which have run in a program of several.
func learn(scripts []driver.Script) {
	known.Lock()
	defer known.Unlock()
	all := slices.CompactFunc(merge(known.others, scripts), same)
	if len(all) <= maxOthers {
		known.others, known.mixed = all, nil
	}
}

// merge returns the scripts of a and b in order.
func merge(a, b []driver.Script) []driver.Script {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b driver.Script) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Source, b.Source))
	})
	return all
}

func same(a, b driver.Script) bool { return a.Name == b.Name && a.Source == b.Source }

// indexOf returns the index of s in scripts, or -1.
func indexOf(scripts []driver.Script, s driver.Script) int {
	return slices.IndexFunc(scripts, func(other driver.Script) bool { return same(s, other) })
}

// textOf returns s without its Args, which may refer to more.
func textOf(s driver.Script) driver.Script {
	s.Args = nil
	return s
}
