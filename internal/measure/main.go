// Command measure prints a table of the packages and Lua files of this repository: how much code
// each has, how its files depend on each other, and its longest function.
//
// A file depends on a file of its package if it uses its declarations. What a method uses of its
// own receiver's type does not count. The level of a file is above the levels of those that it
// depends on. If files depend on each other in a cycle, some dependencies point up: "up" is their
// number in the order of the files that has the fewest.
package main

import (
	"flag"
	"fmt"
	"go/token"
	"io"
	"log"
	"os"
	"strings"

	"github.com/truewindow/ratelimit/internal/tree"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	ups := flag.Bool("up", false, "also list the dependencies that point up")
	flag.Parse()
	if err := run(os.Stdout, *root, *ups); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, root string, ups bool) error {
	fset := token.NewFileSet()
	packages, err := tree.Load(fset, root)
	if err != nil {
		return err
	}
	check, err := newChecker(fset, root)
	if err != nil {
		return err
	}
	var up strings.Builder
	fmt.Fprintln(w, "| package | files | statements | levels | up | longest function | lines |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, p := range packages {
		uses, err := check.uses(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Dir, err)
		}
		levels, back := uses.levels()
		for _, e := range back {
			fmt.Fprintf(&up, "%s: %s uses %s\n", p.Dir, e.from, e.to)
		}
		name, lines := longest(fset, p)
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %s | %d |\n",
			label(p), len(p.Code()), p.Statements(), levels, len(back), name, lines)
	}
	if ups {
		fmt.Fprintf(w, "\n%s", &up)
	}
	return printLua(w, root)
}

func label(p *tree.Package) string {
	if p.TestsOnly() {
		return p.Dir + " (tests)"
	}
	return p.Dir
}
