package config

import (
	"cmp"
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
	Limit    []LimitFlag       `env:"LIMIT" placeholder:"[NAME=]MAX/WINDOW"`
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
		limits = append(limits, &rules.Limit{
			Name: l.WithName().Name, Key: []string{"key"}, Algorithm: cmp.Or(l.Calendar, "log"),
			Holds: time.Minute,
			Rate:  rules.Rate{Units: l.Max, Window: l.Window, Starts: l.Starts}})
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

// A LimitFlag is a limit such as units=1000/1m or, in windows of the calendar, units=1000/week,
// units=1000/week@sunday, units=1000/month@15 or units=1000/quarter.
type LimitFlag struct {
	ratelimit.Limit
	Calendar string // week, month or quarter, whose limits have no Window; or empty
	Starts   int    // the day of rules.Rate
}

// LimitFlags returns the flags of limits of a log.
func LimitFlags(limits ...ratelimit.Limit) []LimitFlag {
	flags := make([]LimitFlag, len(limits))
	for i, l := range limits {
		flags[i].Limit = l
	}
	return flags
}

// UnmarshalText is called by kong.
func (f *LimitFlag) UnmarshalText(text []byte) error {
	rest := string(text)
	slash := strings.LastIndexByte(rest, '/')
	window, day, hasDay := strings.Cut(rest[slash+1:], "@")
	if !algorithms.IsCalendar(window) {
		limit, err := ratelimit.ParseLimit(string(text))
		*f = LimitFlag{Limit: limit}
		return err
	}
	limit, err := ratelimit.ParseLimit(rest[:slash+1] + "1d") // for its name and units
	if err == nil && hasDay {
		f.Starts, err = rules.ParseStarts(day, window)
	}
	limit.Window = 0
	f.Limit, f.Calendar = limit, window
	return err
}

// WithName returns the limit with its window as its name if it has none.
func (f LimitFlag) WithName() ratelimit.Limit {
	f.Name = cmp.Or(f.Name, f.Calendar)
	return WithName(f.Limit)
}

// String returns the flag in the form that UnmarshalText reads, with its name.
func (f LimitFlag) String() string {
	l := f.WithName()
	if f.Calendar == "" {
		return l.String()
	}
	text := fmt.Sprintf("%s=%d/%s", l.Name, l.Max, f.Calendar)
	if f.Starts != 0 {
		text += "@" + rules.StartsText(f.Starts, f.Calendar)
	}
	return text
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
