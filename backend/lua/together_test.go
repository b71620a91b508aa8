package lua

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// foreign is an algorithm that is not of this module.
type foreign struct {
	algorithm.Log
	name, source string
}

func (f foreign) Name() string { return f.name }

func (f foreign) Script() driver.Script {
	source := "local function step() return '" + f.source + "' end"
	return driver.Script{Name: f.name, Source: source,
		Args: func(dst []int64, _ driver.Demand) []int64 { return dst }}
}

// ownKinds returns an algorithm of each kind of this module.
func ownKinds() []driver.Algorithm {
	limit := driver.PerMinute("minute", 2)
	kinds := []driver.Algorithm{
		algorithm.Monthly("month", 3), algorithm.Blocking("block", time.Hour),
		algorithm.SlidingWindowCounter(limit), algorithm.FixedWindow(limit),
		algorithm.TokenBucket("bucket", algorithm.Every(time.Second), 5),
		algorithm.SlidingLog(limit).WithResolution(time.Second),
	}
	for _, a := range kinds {
		kinds = append(kinds, algorithm.Budget(a))
	}
	return append(kinds, algorithm.InFlight("flight", 5))
}

// foreignKinds returns n algorithms that are not of this module.
func foreignKinds(n int) (kinds []driver.Algorithm) {
	for i := range n {
		kinds = append(kinds, foreign{name: fmt.Sprint("foreign", i), source: "1"})
	}
	return kinds
}

// randomCall returns a call of some of kinds, in random groups.
func randomCall(t *testing.T, r *rand.Rand, kinds []driver.Algorithm) *Run {
	t.Helper()
	var c Run
	c.Begin(0)
	kinds = slices.Clone(kinds)
	r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+r.IntN(len(kinds))]
	for i := 0; i < len(kinds); {
		var keys []string
		var ds []driver.Demand
		for range min(len(kinds)-i, 1+r.IntN(4)) {
			keys = append(keys, fmt.Sprint("k", i))
			ds = append(ds, driver.Demand{Key: "k", Algorithm: kinds[i], Op: driver.OpPeek, N: 1})
			i++
		}
		if err := c.Add(keys, ds); err != nil {
			t.Fatal(err)
		}
	}
	return &c
}

// answer passes a reply to c, as if its program had run.
func answer(t *testing.T, c *Run) {
	t.Helper()
	reply := strings.Repeat(packed(0, 1, 0, 60, 7), len(c.Args()))
	out := make([]driver.Result, len(c.parts(reply, 0).demands))
	if err := c.Results(reply, 0, out); err != nil {
		t.Fatal(err)
	}
}

// knowNone makes this process forget what it knows until the end of the test.
func knowNone(t *testing.T) {
	before := known.others
	forget := func(others []driver.Script) { known.others, known.mixed = others, nil }
	forget(nil)
	t.Cleanup(func() { forget(before) })
}

// TestPrograms: calls of any of k algorithms of this module run 3k-1 programs at most: two for each
// alone, and k-1 for several, whatever processes ran before.
func TestPrograms(t *testing.T) {
	knowNone(t)
	r, kinds := rand.New(rand.NewPCG(8, 1)), ownKinds()
	programs := make(map[string]bool)
	for range 5000 {
		programs[randomCall(t, r, kinds).Program().SHA] = true
		var twice Run
		twice.Begin(0)
		d := driver.Demand{Key: "k", Algorithm: kinds[r.IntN(len(kinds))], Op: driver.OpPeek, N: 1}
		if err := twice.AddSame("k", d, 2); err != nil {
			t.Fatal(err)
		}
		programs[twice.Program().SHA] = true
	}
	if most := 3*len(kinds) - 1; len(programs) > most {
		t.Errorf("%d programs for %d algorithms, want %d at most", len(programs), len(kinds), most)
	}
	if len(known.others) > 0 {
		t.Errorf("%d scripts of this module are not in library", len(known.others))
	}
}

// TestProgramsOfOthers: with m algorithms of other modules there are k+1 more programs of several,
// once all have run, and at most as many for each that becomes known. Processes that have learned
// them in another order run the same.
func TestProgramsOfOthers(t *testing.T) {
	own, foreigners := ownKinds(), foreignKinds(9)
	k, m := len(own), len(foreigners)
	var first []Program
	for process := range uint64(3) {
		knowNone(t)
		r, programs := rand.New(rand.NewPCG(8, process)), make(map[string]bool)
		few := 2*(k+m) + k - 1 + k + 1
		for i := range 2000 {
			c := randomCall(t, r, append(own, foreigners...))
			programs[c.Program().SHA] = true
			answer(t, c)
			if i == 1000 {
				if most := few + (k+1)*m; len(programs) > most {
					t.Errorf("%d programs while algorithms become known, want %d at most",
						len(programs), most)
				}
				clear(programs)
			}
		}
		if len(programs) > few {
			t.Errorf("%d programs, want %d at most", len(programs), few)
		}
		var last []Program
		for _, a := range own {
			var c Run
			c.Begin(0)
			if err := errors.Join(c.AddSame("k", driver.Demand{Key: "k", Algorithm: a}, 1),
				c.AddSame("f", driver.Demand{Key: "f", Algorithm: foreigners[0]}, 1)); err != nil {
				t.Fatal(err)
			}
			last = append(last, c.Program())
		}
		if first == nil {
			first = last
		} else if !slices.Equal(last, first) {
			t.Error("processes run different programs")
		}
	}
}

// TestProgramsOfUnknown: a script that has not run in a program of several is in no program that
// does not need it: it may not compile.
func TestProgramsOfUnknown(t *testing.T) {
	knowNone(t)
	program := func(answered bool, kinds ...driver.Algorithm) Program {
		var c Run
		c.Begin(0)
		for i, a := range kinds {
			d := driver.Demand{Key: "k", Algorithm: a, Op: driver.OpPeek, N: 1}
			if err := c.Add([]string{fmt.Sprint("k", i)}, []driver.Demand{d}); err != nil {
				t.Fatal(err)
			}
		}
		p := c.Program()
		if answered {
			answer(t, &c)
		}
		return p
	}
	log, f := ownKinds()[5], foreignKinds(3)
	before := program(true, log, f[0])
	program(false, log, f[1])
	program(true, f[1])
	if program(false, log, f[0]) != before {
		t.Error("a script that has not run in a program of several is in one that does not need it")
	}
	program(true, log, f[1])
	after := program(false, log, f[0])
	if after == before || after != program(false, log, f[1]) {
		t.Error("a script that has run in a program of several is not in all")
	}
	other := foreign{name: "foreign0", source: "2"}
	if p := program(false, f[0], other); !strings.Contains(p.Source, "'1'") ||
		!strings.Contains(p.Source, "'2'") {
		t.Error("of two scripts with one name only one is in the program")
	}
}

// TestProgramsOfMany: this process knows few others, and a call has few scripts, so that each has
// its place in the program.
func TestProgramsOfMany(t *testing.T) {
	knowNone(t)
	var c Run
	all := append(ownKinds(), foreignKinds(maxScripts+maxOthers)...)
	for part := range slices.Chunk(all[len(ownKinds()):], maxOthers/2) {
		c.Begin(0)
		for i, a := range part {
			d := driver.Demand{Key: "k", Algorithm: a, Op: driver.OpPeek, N: 1}
			if err := c.Add([]string{fmt.Sprint("k", i)}, []driver.Demand{d}); err != nil {
				t.Fatal(err)
			}
		}
		answer(t, &c)
	}
	if n := len(known.others); n != maxOthers {
		t.Errorf("%d others are known, want %d", n, maxOthers)
	}
	c.Begin(0)
	last := all[len(all)-maxScripts:]
	last[0] = algorithm.Budget(algorithm.Blocking("block", time.Hour)) // the last of library
	add := func(ds ...driver.Demand) error { return c.Add(make([]string, len(ds)), ds) }
	for _, a := range last {
		if err := add(driver.Demand{Key: "k", Algorithm: a, Op: driver.OpPeek, N: 1}); err != nil {
			t.Fatal(err)
		}
	}
	places := make(map[byte]bool)
	for _, arg := range c.Args() {
		places[arg[25]] = true
	}
	if len(places) != maxScripts || places[0] {
		t.Errorf("%d places for %d scripts", len(places), maxScripts)
	}
	again := driver.Demand{Key: "k", Algorithm: last[1], Op: driver.OpPeek, N: 1}
	more := again
	more.Algorithm = all[len(ownKinds())]
	if err := add(again, more); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("one script too many: %v", err)
	}
	if len(c.Args()) != maxScripts || add(again) != nil || len(c.Args()) != maxScripts+1 {
		t.Error("a group that was refused changed the call")
	}
}

// TestLibrary: library has a script of each type of package algorithm that has one.
func TestLibrary(t *testing.T) {
	names, err := filepath.Glob("../../algorithm/*.go")
	if err != nil {
		t.Fatal(err)
	}
	missing := make(map[string]bool)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "Script" {
				missing["algorithm."+f.Recv.List[0].Type.(*ast.Ident).Name] = true
			}
		}
	}
	if len(missing) < 6 {
		t.Fatalf("found %v", missing)
	}
	for _, a := range algorithms() {
		delete(missing, fmt.Sprintf("%T", a))
	}
	for name := range missing {
		t.Errorf("no %s is in library", name)
	}
	if len(library()) != len(ownKinds()) {
		t.Errorf("%d scripts in library, want %d", len(library()), len(ownKinds()))
	}
}
