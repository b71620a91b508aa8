package replay

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// exactly returns proposals of limits with the exact log.
func exactly(limits ...driver.Limit) (ps []Proposal) {
	for _, l := range limits {
		ps = append(ps, Proposal{"log", algorithm.SlidingLog(l)})
	}
	return ps
}

// replayed decides arrivals that are not read from a log.
func replayed(t testing.TB, proposals []Proposal, arrivals []arrival) (*engine, *Report) {
	t.Helper()
	e := newEngine(proposals)
	e.input.Lines = int64(len(arrivals))
	for i := range arrivals {
		e.arrive(&arrivals[i])
	}
	return e, e.report(&Options{})
}

// runOne is Run for one log.
func runOne(ctx context.Context, log io.Reader, o Options) (*Report, error) {
	return Run(ctx, []io.Reader{log}, o)
}

func prefixes(list string) (all []netip.Prefix) {
	for text := range strings.SplitSeq(list, ",") {
		if text != "" {
			all = append(all, netip.MustParsePrefix(text))
		}
	}
	return all
}
