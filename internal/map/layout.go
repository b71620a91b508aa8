package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/internal/tree"
)

// A plan says where the boxes of the picture are.
type plan struct {
	lanes []*lane
	rows  [][]*box // by level, from the bottom
	apart []*box   // tests and tools, which are in no lane
	w, h  float64
}

// newPlan places each package. steps has the steps of a Take by directory.
func newPlan(packages []*tree.Package, steps map[string][]steps) *plan {
	p := &plan{lanes: newLanes()}
	boxes := make(map[string]*box)
	imports := make(map[*box][]string)
	var all []*box
	for _, pkg := range packages {
		dir := folder(pkg.Dir)
		b := boxes[dir]
		if b == nil {
			b = &box{dir: dir, steps: steps[dir]}
			boxes[dir] = b
			all = append(all, b)
		}
		b.statements += pkg.Statements()
		imports[b] = append(imports[b], pkg.Imports()...)
		for _, l := range p.lanes {
			if l.has(dir) {
				b.lane = l
			}
		}
	}
	for i := 0; i < len(all); i++ { // a helper gets the lane of the first package that imports it
		for _, dir := range imports[all[i]] {
			if to := boxes[dir]; to != nil && to.lane == nil && all[i].lane != nil {
				to.lane, i = all[i].lane, -1
				break
			}
		}
	}
	for _, b := range all {
		if b.lane == nil {
			p.apart = append(p.apart, b)
			continue
		}
		for _, dir := range imports[b] {
			if to := boxes[dir]; to != nil {
				b.imports = append(b.imports, to)
			}
		}
	}
	p.stack(all)
	p.addBends()
	p.place()
	return p
}

// folder returns the directory of the box that a package is in.
func folder(dir string) string {
	if strings.HasPrefix(dir, "integration/") {
		return "integration"
	}
	return dir
}

// stack puts boxes on rows by their levels, and drops the arrows that other arrows imply.
func (p *plan) stack(boxes []*box) {
	p.setLevels(boxes)
	var reaches func(from, to *box) bool
	reaches = func(from, to *box) bool {
		return slices.ContainsFunc(from.imports, func(b *box) bool {
			return b == to || reaches(b, to)
		})
	}
	for _, b := range boxes {
		if b.lane == nil {
			continue
		}
		for len(p.rows) <= b.level {
			p.rows = append(p.rows, nil)
		}
		p.rows[b.level] = append(p.rows[b.level], b)
	}
	for _, row := range slices.Backward(p.rows) {
		for _, b := range row {
			b.imports = slices.DeleteFunc(b.imports, func(to *box) bool {
				return slices.ContainsFunc(b.imports, func(b *box) bool { return reaches(b, to) })
			})
		}
	}
}

// setLevels puts each box above those that it imports. Where that leaves too many boxes of a lane
// on one level, some move up, internal ones first.
func (p *plan) setLevels(boxes []*box) {
	var level func(b *box) int
	level = func(b *box) int {
		for _, to := range b.imports {
			b.level = max(b.level, level(to)+1)
		}
		return b.level
	}
	public := func(b *box) bool { return !b.isInternal() }
	sorted := slices.Concat(slices.DeleteFunc(slices.Clone(boxes), (*box).isInternal),
		slices.DeleteFunc(slices.Clone(boxes), public))
	for l := 0; l < len(boxes); l++ {
		count := make(map[*lane]int)
		for _, b := range sorted {
			if b.lane == nil || level(b) != l {
				continue
			}
			if count[b.lane]++; count[b.lane] > mostBoxes {
				b.level++
			}
		}
	}
}

// addBends adds bends to the arrows that pass rows: one on each of these rows, shared by all arrows
// to the same box.
func (p *plan) addBends() {
	for level := len(p.rows) - 1; level > 0; level-- {
		bends := make(map[*box]*box)
		for _, b := range p.rows[level] {
			for i, to := range b.imports {
				if to.level < level-1 {
					if bends[to] == nil {
						bends[to] = &box{level: level - 1, lane: to.lane, imports: []*box{to}}
						p.rows[level-1] = append(p.rows[level-1], bends[to])
					}
					b.imports[i] = bends[to]
				}
				b.imports[i].importers = append(b.imports[i].importers, b)
			}
		}
	}
}

// Sizes of the picture, in pixels.
const (
	leastWidth = 1000
	margin     = 20
	top        = 96 // the first row
	rowGap     = 46
	laneGap    = 12
	mostBoxes  = 3 // of a lane on a level
)

// place gives each box its size and place.
func (p *plan) place() {
	for _, row := range p.rows {
		for _, b := range row {
			b.resize()
		}
	}
	for range 8 {
		p.order()
	}
	p.y()
	p.widths()
	for range 8 {
		p.x()
	}
	p.placeApart()
}

// order sorts the boxes of each row by the positions of the boxes that they are connected to.
func (p *plan) order() {
	at := make(map[*box]float64)
	for _, row := range p.rows {
		for i, b := range row {
			at[b] = float64(i+1) / float64(len(row)+1)
		}
	}
	for _, row := range slices.Backward(p.rows) {
		for _, b := range row {
			if near := slices.Concat(b.imports, b.importers); len(near) > 0 {
				sum := 0.
				for _, other := range near {
					sum += at[other]
				}
				at[b] = sum / float64(len(near))
			}
		}
		slices.SortStableFunc(row, func(a, b *box) int {
			lanes := slices.Index(p.lanes, a.lane) - slices.Index(p.lanes, b.lane)
			return cmp.Or(lanes, cmp.Compare(at[a], at[b]))
		})
		for i, b := range row {
			at[b] = float64(i+1) / float64(len(row)+1)
		}
	}
}

// y sets the vertical positions of the rows, from the top.
func (p *plan) y() {
	y := float64(top)
	for _, row := range slices.Backward(p.rows) {
		height := 0.
		for _, b := range row {
			b.y = y
			height = max(height, b.h)
		}
		for _, b := range row {
			if b.isBend() {
				b.h = height
			}
		}
		y += height + rowGap
	}
	p.h = y - rowGap
}

// widths shares the width among the lanes, each at least as wide as its widest row.
func (p *plan) widths() {
	rest := float64(leastWidth - 2*margin + laneGap)
	for _, l := range p.lanes {
		l.w = 24 + 8*float64(len(l.title))
		for _, row := range p.rows {
			w := float64(boxGap)
			for _, b := range row {
				if b.lane == l {
					w += b.w + b.gap()
				}
			}
			l.w = max(l.w, w)
		}
		rest -= l.w + laneGap
	}
	p.w = leastWidth - min(rest, 0)
	rest = max(rest, 0)
	x := float64(margin)
	for _, l := range p.lanes {
		l.x = x
		l.w += rest / float64(len(p.lanes))
		x += l.w + laneGap
	}
}

// x moves each box towards the middle of the boxes that it is connected to.
func (p *plan) x() {
	for _, row := range p.rows {
		for _, l := range p.lanes {
			var boxes []*box
			for _, b := range row {
				if b.lane == l {
					boxes = append(boxes, b)
				}
			}
			spread(boxes, l.x+boxGap, l.x+l.w-boxGap)
		}
	}
}

// spread puts boxes between left and right in their order, each near those that it is connected to.
func spread(boxes []*box, left, right float64) {
	fromLeft, fromRight := make([]float64, len(boxes)), make([]float64, len(boxes))
	for i, b := range boxes {
		want := (left + right) / 2
		near := b.imports
		if !b.isBend() {
			near = slices.Concat(b.imports, b.importers)
		}
		if len(near) > 0 {
			want = 0
			for _, other := range near {
				want += other.middle() / float64(len(near))
			}
		}
		fromLeft[i] = want - b.w/2
		fromRight[i] = fromLeft[i]
	}
	edge := left
	for i, b := range boxes {
		fromLeft[i] = max(fromLeft[i], edge)
		edge = fromLeft[i] + b.w + b.gap()
	}
	edge = right
	for i, b := range slices.Backward(boxes) {
		fromRight[i] = min(fromRight[i], edge-b.w)
		edge = fromRight[i] - b.gap()
	}
	edge = right
	for i, b := range slices.Backward(boxes) {
		b.x = min((fromLeft[i]+fromRight[i])/2, edge-b.w)
		edge = b.x - b.gap()
	}
	edge = left
	for _, b := range boxes {
		b.x = max(b.x, edge)
		edge = b.x + b.w + b.gap()
	}
}

// placeApart puts tests and tools below the rows, line by line.
func (p *plan) placeApart() {
	slices.SortStableFunc(p.apart, func(a, b *box) int {
		return cmp.Compare(b.statements, a.statements)
	})
	x, y, height := float64(margin+12), p.h+82, 0.
	for _, b := range p.apart {
		b.resize()
		b.h = boxHeight
		if x+b.w > p.w-margin-12 {
			x, y = margin+12, y+height+boxGap
			height = 0
		}
		b.x, b.y = x, y
		height = max(height, b.h)
		x += b.w + boxGap
	}
	p.h = y + height + 12
}
