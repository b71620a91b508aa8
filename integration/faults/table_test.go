package faults

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// faultTable has the measurements of the fault tests, for the first table of docs/faults.md. The
// environment variable RATELIMIT_FAULTS_MD is the path of the page; if it is empty, nothing is
// written.
var faultTable table[faultRow]

const faultTableEnv = "RATELIMIT_FAULTS_MD"

// writeFaults writes the tables if RATELIMIT_FAULTS_MD is set. It fails if a cell would be empty.
func writeFaults() error {
	page := os.Getenv(faultTableEnv)
	if page == "" {
		return nil
	}
	faults, err := faultTable.markdown(faultNames(), faultImages(), faultColumns)
	if err != nil {
		return err
	}
	breakers, err := breakerTable.markdown(breakerFaults, faultImages(), breakerColumns)
	if err != nil {
		return err
	}
	holds, err := holdTable.markdown(holdFaultNames(), faultImages(), holdColumns)
	if err != nil {
		return err
	}
	return errors.Join(servers.WriteTable(page, "faults", "make faults", faults),
		servers.WriteTable(page, "holds", "make faults", holds),
		servers.WriteTable(page, "breaker", "make faults", breakers))
}

// A table has one line for each fault. Its cells tell what all clients of all images got.
type table[R row] struct {
	mu   sync.Mutex
	rows []R
}

type row interface{ of() [3]string } // fault, client and image

type column[R row] struct {
	name string
	cell func([]R) string
}

func (tb *table[R]) add(r R) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.rows = append(tb.rows, r)
}

func (tb *table[R]) markdown(faults, images []string, columns []column[R]) (string, error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	var b strings.Builder
	b.WriteString("| fault |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	var missing []error
	for _, fault := range faults {
		var rows []R
		for _, lib := range clients.Libraries {
			for _, image := range images {
				k := slices.IndexFunc(tb.rows, func(r R) bool {
					return r.of() == [3]string{fault, lib.Name, image}
				})
				if k < 0 {
					missing = append(missing,
						fmt.Errorf("nothing was measured of %s, %s, %s", fault, lib.Name, image))
					continue
				}
				rows = append(rows, tb.rows[k])
			}
		}
		fmt.Fprintf(&b, "| %s |", fault)
		for _, c := range columns {
			if len(rows) > 0 {
				fmt.Fprintf(&b, " %s |", c.cell(rows))
			}
		}
		b.WriteByte('\n')
	}
	return b.String(), errors.Join(missing...)
}

// leastToMost tells the least and the most of what rows have.
func leastToMost[R any, N cmp.Ordered](rows []R, of func(R) N, show func(N) string) string {
	var all []N
	for _, r := range rows {
		all = append(all, of(r))
	}
	least, most := show(slices.Min(all)), show(slices.Max(all))
	if least == most {
		return least
	}
	number, unit, _ := strings.Cut(least, " ")
	if _, other, _ := strings.Cut(most, " "); unit == other {
		least = number
	}
	return least + "–" + most
}

// spanOf and timesOf return the cells of numbers and of times.
func spanOf[R any](of func(R) int) func([]R) string {
	return func(rows []R) string { return leastToMost(rows, of, strconv.Itoa) }
}

func timesOf[R any](of func(R) time.Duration) func([]R) string {
	return func(rows []R) string { return leastToMost(rows, of, inMillis) }
}

// A faultRow is what one client of one server got in one fault.
type faultRow struct {
	fault, client, image string

	got     got
	slowest time.Duration

	admitted, unknown, recorded int
	forgets                     string // why admitted units may be lost; "" if they may not

	noticed time.Duration // the first answer, since the end of the fault
	// the last failed call, since the end of the fault, or the first answer, since the election of
	// another primary
	normal   time.Duration
	election time.Duration // of another primary, since the fault; 0 if there was none
}

var faultColumns = []column[faultRow]{
	{"answered", spanOf(func(r faultRow) int { return r.got.answers })},
	{"unavailable", spanOf(func(r faultRow) int { return r.got.unavailable })},
	{"unknown", spanOf(func(r faultRow) int { return r.got.unknown })},
	{"slowest call", timesOf(func(r faultRow) time.Duration { return r.slowest })},
	{"recorded", account},
	{"normal after", func(rows []faultRow) string {
		text := timesOf(func(r faultRow) time.Duration { return r.normal })(rows)
		if rows[0].election == 0 {
			return text
		}
		return fmt.Sprintf("%s (elected after %s)", text,
			timesOf(func(r faultRow) time.Duration { return r.election })(rows))
	}},
}

func (r faultRow) of() [3]string { return [3]string{r.fault, r.client, r.image} }

// account compares what is recorded with what was admitted.
func account(rows []faultRow) string {
	var more, unknown int
	for _, r := range rows {
		if r.recorded < r.admitted {
			lost := spanOf(func(r faultRow) int { return max(0, r.admitted-r.recorded) })
			return lost(rows) + " lost by " + r.forgets
		}
		more, unknown = more+r.recorded-r.admitted, unknown+r.unknown
	}
	if unknown == 0 {
		return "all"
	}
	return fmt.Sprintf("all, and %d of %d unknown", more, unknown)
}

func inMillis(d time.Duration) string {
	if d == 0 {
		return "0 ms"
	}
	if d >= 10*time.Second {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	if d >= time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", max(1, d.Round(time.Millisecond).Milliseconds()))
}

// faultNames are the faults in the order of the table.
func faultNames() (names []string) {
	for _, b := range breakages {
		names = append(names, b.name)
	}
	for _, kind := range []string{"cluster", "Sentinel"} {
		for _, f := range faults {
			names = append(names, failoverName(kind, f))
		}
	}
	return append(names, slotMoves)
}

func failoverName(kind string, f fault) string { return kind + ", primary lost: " + f.name }

const slotMoves = "cluster, a slot moves"
