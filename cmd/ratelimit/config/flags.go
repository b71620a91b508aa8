package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

var errNames = errors.New("each limit of --limit, --in-flight and --block needs its own name, as " +
	"in --limit NAME=MAX/WINDOW; without one, its window is its name")

// Flags are the limits of a command line.
type Flags struct {
	Limit    []ratelimit.Limit `env:"LIMIT" placeholder:"[NAME=]MAX/WINDOW"`
	InFlight []ratelimit.Limit `env:"IN_FLIGHT" placeholder:"NAME=MAX/WINDOW"`
	Block    []BlockFlag       `env:"BLOCK" placeholder:"NAME=LONGEST"`
}

// HasLimits reports whether there is a limit.
func (f *Flags) HasLimits() bool { return len(f.Limit)+len(f.InFlight)+len(f.Block) > 0 }

// Compile returns the limits as a file would have them. Only names reach those of --in-flight and
// --block.
func (f *Flags) Compile() (*rules.Set, error) {
	if len(f.Limit) == 0 {
		return nil, fmt.Errorf("%w limit: --limit has no limit", ratelimit.ErrInvalid)
	}
	var limits []*rules.Limit
	for _, l := range f.Limit {
		l = WithName(l)
		limits = append(limits, &rules.Limit{
			Name: l.Name, Key: []string{"key"}, Algorithm: "log", Holds: time.Minute,
			Rate: rules.Rate{Units: l.Max, Window: l.Window}})
	}
	for _, l := range f.InFlight {
		limits = append(limits, &rules.Limit{
			Name: WithName(l).Name, ByName: true, Key: []string{"key"},
			Algorithm: algorithms.InFlight, Holds: l.Window, Rate: rules.Rate{Units: l.Max}})
	}
	for _, b := range f.Block {
		limits = append(limits, &rules.Limit{
			Name: b.Limit().Name, ByName: true, Key: []string{"key"},
			Algorithm: algorithms.Block, Rate: rules.Rate{Window: b.Limit().Window}})
	}
	names := make(map[string]bool)
	for _, l := range limits {
		if names[l.Name] {
			return nil, fmt.Errorf("%w limit: the name %q is taken: %w",
				ratelimit.ErrInvalid, l.Name, errNames)
		}
		names[l.Name] = true
	}
	return rules.Compile(limits, nil)
}

// WithName returns l with its window as its name if it has none. All limits of the flags come from
// one command line, where two of the same window are refused.
func WithName(l ratelimit.Limit) ratelimit.Limit {
	if l.Name == "" {
		l.Name = l.Window.String()
	}
	return l
}

// A BlockFlag is the name of a block and the longest time for which it can last, as in blocked=24h.
type BlockFlag struct{ algorithm.Block }

// UnmarshalText is called by kong.
func (f *BlockFlag) UnmarshalText(text []byte) error {
	form := fmt.Errorf("%q is not of the form NAME=LONGEST, such as blocked=24h", text)
	at := strings.LastIndexByte(string(text), '=') // a name may contain one
	if at < 0 {
		return form
	}
	// The form is that of a limit without its units.
	limit, err := ratelimit.ParseLimit(string(text[:at]) + "=1/" + string(text[at+1:]))
	if err != nil {
		return fmt.Errorf("%w: %w", form, err)
	}
	b := algorithm.Blocking(limit.Name, limit.Window)
	if err := b.Validate(); err != nil {
		return err
	}
	f.Block = b
	return nil
}

// String returns the flag in the form that UnmarshalText reads.
func (f BlockFlag) String() string { return f.Limit().Name + "=" + f.Limit().Window.String() }
