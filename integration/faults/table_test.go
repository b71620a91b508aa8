package faults

import (
	"errors"
	"fmt"
	"os"
	"slices"
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
	return errors.Join(servers.WriteTable(page, "faults", "make faults", faults),
		servers.WriteTable(page, "breaker", "make faults", breakers))
}

// A table has one line for each fault and client. A cell has the values of all images.
type table[R row] struct {
	mu   sync.Mutex
	rows []R
}

type row interface {
	of() [3]string // fault, client and image
	cells() []string
}

func (tb *table[R]) add(r R) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.rows = append(tb.rows, r)
}

func (tb *table[R]) markdown(faults, images, columns []string) (string, error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "Each cell has the figure of %s.\n\n",
		strings.Join(images, ", then that of "))
	fmt.Fprintf(&b, "| fault | client | %s |\n|---|---|%s\n",
		strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	var missing []error
	for _, fault := range faults {
		name := fault
		for _, lib := range clients.Libraries {
			fmt.Fprintf(&b, "| %s | %s |", name, lib.Name)
			name = "″"
			cells := make([][]string, len(columns))
			for _, image := range images {
				k := slices.IndexFunc(tb.rows, func(r R) bool {
					return r.of() == [3]string{fault, lib.Name, image}
				})
				if k < 0 {
					missing = append(missing,
						fmt.Errorf("nothing was measured of %s, %s, %s", fault, lib.Name, image))
					continue
				}
				for i, cell := range tb.rows[k].cells() {
					cells[i] = append(cells[i], cell)
				}
			}
			for _, both := range cells {
				fmt.Fprintf(&b, " %s |", strings.Join(both, " / "))
			}
			b.WriteByte('\n')
		}
	}
	return b.String(), errors.Join(missing...)
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

var faultColumns = []string{"answered", "unavailable", "unknown", "slowest call", "recorded",
	"normal after"}

func (r faultRow) of() [3]string { return [3]string{r.fault, r.client, r.image} }

func (r faultRow) cells() []string {
	return []string{
		fmt.Sprint(r.got.answers), fmt.Sprint(r.got.unavailable), fmt.Sprint(r.got.unknown),
		inMillis(r.slowest), r.account(), r.normalCell(),
	}
}

func (r faultRow) normalCell() string {
	if r.election > 0 {
		return fmt.Sprintf("%s (elected after %s)", after(r.normal), inMillis(r.election))
	}
	return after(r.normal)
}

func after(d time.Duration) string {
	if d == 0 {
		return "at once"
	}
	return inMillis(d)
}

// account compares what is recorded with what was admitted.
func (r faultRow) account() string {
	switch more := r.recorded - r.admitted; {
	case more < 0:
		return fmt.Sprintf("−%d: %s", -more, r.forgets)
	case r.unknown == 0:
		return "all admitted"
	default:
		return fmt.Sprintf("all admitted, %d of %d unknown", more, r.unknown)
	}
}

func inMillis(d time.Duration) string {
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
