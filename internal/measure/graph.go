package main

import "slices"

// graph has the dependencies between files.
type graph struct {
	files []string
	edges []edge
}

// edge says that one file uses another.
type edge struct{ from, to string }

func (g *graph) add(from, to string) {
	if e := (edge{from, to}); !slices.Contains(g.edges, e) {
		g.edges = append(g.edges, e)
	}
}

// levels returns the number of levels of the files, and the edges that point up. It searches for
// the order of the files with the fewest of them: it moves one file at a time as long as that
// helps.
func (g *graph) levels() (levels int, up []edge) {
	order := slices.Clone(g.files)
	slices.Sort(order)
	best := len(g.upward(order))
	for improved := true; improved; {
		improved = false
		for i := range order {
			for j := range order {
				moved := slices.Insert(slices.Delete(slices.Clone(order), i, i+1), j, order[i])
				if n := len(g.upward(moved)); n < best {
					order, best, improved = moved, n, true
				}
			}
		}
	}
	up = g.upward(order)
	level := make(map[string]int)
	for _, file := range order {
		level[file] = 1
		for _, e := range g.edges {
			if e.from == file && !slices.Contains(up, e) {
				level[file] = max(level[file], level[e.to]+1)
			}
		}
		levels = max(levels, level[file])
	}
	return levels, up
}

// upward returns the edges to files that are later in order.
func (g *graph) upward(order []string) (up []edge) {
	at := make(map[string]int, len(order))
	for i, file := range order {
		at[file] = i
	}
	for _, e := range g.edges {
		if at[e.to] > at[e.from] {
			up = append(up, e)
		}
	}
	return up
}
