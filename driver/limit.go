package driver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of limits and demands. They keep every number of the module below 2^53, so that Go and Lua
// calculate with the same integers.
const (
	MaxUnits  = int64(1) << 40       // largest Max of a limit, and largest N of a demand
	MinWindow = time.Millisecond     // shortest Window
	MaxWindow = 366 * 24 * time.Hour // longest Window

	maxNameLen = 64
)

// A Limit is at most Max units in any Window. Limits are values; compare them with ==. A Limit
// marshals to the text of [Limit.String] and unmarshals with [ParseLimit], so it can be a field in
// JSON or YAML and the value of a flag ([flag.TextVar]).
type Limit struct {
	// Name identifies the limit among those of one key, and is part of the stored key: limits with
	// the same name share one history, whatever Max and Window. Limiters require it. It has at most
	// 64 bytes of printable ASCII without space, quotation mark and backslash.
	Name string
	// Max is the number of units admitted in any Window, from 1 to [MaxUnits]. There is no default.
	Max int64
	// Window is the length of time for which an admitted unit counts, in whole microseconds from
	// [MinWindow] to [MaxWindow]. There is no default.
	Window time.Duration
}

// PerSecond returns a limit of at most the given units in any second.
func PerSecond(name string, units int64) Limit { return Limit{name, units, time.Second} }

// PerMinute returns a limit of at most the given units in any minute.
func PerMinute(name string, units int64) Limit { return Limit{name, units, time.Minute} }

// PerHour returns a limit of at most the given units in any hour.
func PerHour(name string, units int64) Limit { return Limit{name, units, time.Hour} }

// PerDay returns a limit of at most the given units in any 24 hours.
func PerDay(name string, units int64) Limit { return Limit{name, units, 24 * time.Hour} }

// Validate returns an error that wraps [ErrInvalid] if a field is out of range. A limit
// without a name is valid, but limiters do not accept it.
func (l Limit) Validate() error {
	switch {
	case l.Max < 1 || l.Max > MaxUnits:
		return fmt.Errorf("%w limit: Max %d is not between 1 and %d", ErrInvalid, l.Max, MaxUnits)
	case l.Window < MinWindow || l.Window > MaxWindow:
		return fmt.Errorf("%w limit: Window %v is not between %v and %v",
			ErrInvalid, l.Window, MinWindow, MaxWindow)
	case l.Window%time.Microsecond != 0:
		return fmt.Errorf("%w limit: Window %v is not a whole number of microseconds",
			ErrInvalid, l.Window)
	case len(l.Name) > maxNameLen:
		return fmt.Errorf("%w limit: Name is longer than %d bytes", ErrInvalid, maxNameLen)
	}
	for i := range len(l.Name) {
		if c := l.Name[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return fmt.Errorf("%w limit: Name %q has a byte that is not allowed: use printable "+
				"ASCII without space, quotation mark and backslash", ErrInvalid, l.Name)
		}
	}
	return nil
}

// String returns the limit in the form that [ParseLimit] reads, such as "login=60/1m0s", or
// "60/1m0s" without a name.
func (l Limit) String() string {
	s := strconv.FormatInt(l.Max, 10) + "/" + l.Window.String()
	if l.Name != "" {
		s = l.Name + "=" + s
	}
	return s
}

// MarshalText returns the text of [Limit.String], or the error of [Limit.Validate].
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return []byte(l.String()), nil
}

// UnmarshalText sets l to the result of [ParseLimit]. After an error l is unchanged.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

// ParseLimit reads "NAME=MAX/WINDOW", or "MAX/WINDOW" for a limit without a name. WINDOW is a
// duration as in [time.ParseDuration], a whole number of days ("7d"), or a unit alone ("10/s",
// "100/m", "1000/h", "5000/d"). An error wraps [ErrInvalid]; a limit that is out of range is
// an error too.
func ParseLimit(s string) (Limit, error) {
	var l Limit
	rest := s
	if i := strings.LastIndexByte(s, '='); i >= 0 { // a name may hold one
		if i == 0 {
			return Limit{}, fmt.Errorf("%w limit: %q has an empty name", ErrInvalid, s)
		}
		l.Name, rest = s[:i], s[i+1:]
	}
	units, window, ok := strings.Cut(rest, "/")
	if !ok {
		return Limit{}, fmt.Errorf("%w limit: %q is not of the form MAX/WINDOW, such as 10/1m",
			ErrInvalid, s)
	}
	var err error
	if l.Max, err = strconv.ParseInt(units, 10, 64); err != nil {
		return Limit{}, fmt.Errorf("%w limit: %q: MAX is not an integer", ErrInvalid, s)
	}
	if l.Window, err = parseWindow(window); err != nil {
		return Limit{},
			fmt.Errorf("%w limit: %q: the window is not a duration such as 1s, 1m, 1h, 7d or 500ms",
				ErrInvalid, s)
	}
	if err := l.Validate(); err != nil {
		return Limit{}, err
	}
	return l, nil
}

func parseWindow(s string) (time.Duration, error) {
	if s == "" {
		return 0, strconv.ErrSyntax
	}
	if strings.IndexByte("+-.0123456789", s[0]) < 0 { // a bare unit
		s = "1" + s
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(s)
}
