package faults

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/integration/clients"
)

// The measurements of the tests with a fault, each for a file beside docs/faults.md.
var (
	faultTable   table[faultRow]
	holdTable    table[holdRow]
	breakerTable table[breakerRow]
)

// faultsDirEnv names the environment variable with the directory of the page. If it is empty,
// nothing is written.
const faultsDirEnv = "RATELIMIT_FAULTS_DIR"

// The files of the measurements, and the picture of the first.
const (
	faultsFile   = "faults.csv"
	holdsFile    = "faults-holds.csv"
	breakerFile  = "faults-breaker.csv"
	faultPicture = "faults.svg"
)

// writeFaults writes the files if RATELIMIT_FAULTS_DIR is set, none if a measurement is missing. If
// nothing was measured, as with -run TestFaultShares, it only draws the picture again.
func writeFaults() error {
	dir := os.Getenv(faultsDirEnv)
	if dir == "" {
		return nil
	}
	if len(faultTable.rows)+len(holdTable.rows)+len(breakerTable.rows) > 0 {
		images := faultImages()
		faults, err1 := faultTable.records(faultNames(), images, faultColumns)
		holds, err2 := holdTable.records(holdFaultNames(), images, holdColumns)
		breakers, err3 := breakerTable.records(breakerFaults, images, breakerColumns)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if err := errors.Join(writeRecords(filepath.Join(dir, faultsFile), faults),
			writeRecords(filepath.Join(dir, holdsFile), holds),
			writeRecords(filepath.Join(dir, breakerFile), breakers)); err != nil {
			return err
		}
	}
	picture, err := drawFaults(filepath.Join(dir, faultsFile))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, faultPicture), picture, 0o644)
}

func writeRecords(path string, records [][]string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(file).WriteAll(records), file.Close())
}

// A table has one row for each fault, client and server.
type table[R row] struct {
	mu   sync.Mutex
	rows []R
}

type row interface{ of() [3]string } // fault, client and image

type column[R row] struct {
	name string
	cell func(R) string
}

func (tb *table[R]) add(r R) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.rows = append(tb.rows, r)
}

// records returns the names of the columns and then the rows, in the order of the faults.
func (tb *table[R]) records(faults, images []string, columns []column[R]) ([][]string, error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	head := []string{"fault", "client", "server"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	all := [][]string{head}
	var missing []error
	for _, fault := range faults {
		for _, lib := range clients.Libraries {
			for _, image := range images {
				of := [3]string{fault, lib.Name, image}
				k := slices.IndexFunc(tb.rows, func(r R) bool { return r.of() == of })
				if k < 0 {
					missing = append(missing,
						fmt.Errorf("nothing was measured of %s, %s, %s", fault, lib.Name, image))
					continue
				}
				record := of[:]
				for _, c := range columns {
					record = append(record, c.cell(tb.rows[k]))
				}
				all = append(all, record)
			}
		}
	}
	return all, errors.Join(missing...)
}

// countOf and millisOf return the cells of numbers and of times.
func countOf[R any](of func(R) int) func(R) string {
	return func(r R) string { return strconv.Itoa(of(r)) }
}

func millisOf[R any](of func(R) time.Duration) func(R) string {
	return countOf(func(r R) int { return int(of(r).Round(time.Millisecond).Milliseconds()) })
}

// A faultRow is what one client of one server got in one fault.
type faultRow struct {
	fault, client, image string

	got     got
	slowest time.Duration

	admitted, unknown, recorded int

	noticed time.Duration // the first answer, since the end of the fault
	// the last failed call, since the end of the fault, or the first answer, since the election of
	// another primary
	normal   time.Duration
	election time.Duration // of another primary, since the fault; 0 if there was none
}

var faultColumns = []column[faultRow]{
	{"answered", countOf(func(r faultRow) int { return r.got.answers })},
	{"unavailable", countOf(func(r faultRow) int { return r.got.unavailable })},
	{"unknown", countOf(func(r faultRow) int { return r.got.unknown })},
	{"slowest call (ms)", millisOf(func(r faultRow) time.Duration { return r.slowest })},
	{"units admitted", countOf(func(r faultRow) int { return r.admitted })},
	{"units unknown", countOf(func(r faultRow) int { return r.unknown })},
	{"units recorded", countOf(func(r faultRow) int { return r.recorded })},
	{"elected after (ms)", millisOf(func(r faultRow) time.Duration { return r.election })},
	{"normal after (ms)", millisOf(func(r faultRow) time.Duration { return r.normal })},
}

func (r faultRow) of() [3]string { return [3]string{r.fault, r.client, r.image} }

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
