package replay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit"
)

// Format is how the lines of a log are written.
type Format string

// The formats.
const (
	JSONLines Format = "json"     // an object in each line
	Common    Format = "common"   // the common log format
	Combined  Format = "combined" // the same with referer and user agent
)

// The reasons for which a line is rejected.
var (
	errBlank    = errors.New("blank")
	errTooLong  = errors.New("longer than 1 MiB")
	errSyntax   = errors.New("not in the format of the log")
	errNoKey    = errors.New("no key")
	errBadKey   = errors.New("the key is an object or a list, not text")
	errNoTime   = errors.New("no time")
	errBadTime  = errors.New("the time cannot be read")
	errNoUnits  = errors.New("no units")
	errBadUnits = errors.New("the units are not an integer from 0 to 2^40")
)

// A parser reads a line into a. The key of a may share memory with the line.
type parser interface {
	parse(line []byte, a *arrival) error
}

func (o *Options) validateFormat() error {
	switch o.Format {
	case "", JSONLines:
		return nil
	case Common, Combined:
		return o.validateFields(o.Format)
	}
	return fmt.Errorf("%w: %q is not a format; the formats are json, common and combined",
		ratelimit.ErrInvalidOptions, string(o.Format))
}

// validateFields reports an option for a field that lines of an access log do not have.
func (o *Options) validateFields(f Format) error {
	names := fieldNames[:commonFields]
	if f == Combined {
		names = fieldNames[:]
	}
	for _, field := range []string{o.KeyField, o.UnitsField} {
		if field != "" && !slices.Contains(names, field) {
			return fmt.Errorf("%w: the %s format has no field %q; it has: %s",
				ratelimit.ErrInvalidOptions, f, field, strings.Join(names, ", "))
		}
	}
	if o.TimeField != "" {
		return fmt.Errorf("%w: the %s format has a time of its own and needs no time field",
			ratelimit.ErrInvalidOptions, f)
	}
	return nil
}

// newParser returns the parser of a log, and sets the options that are empty. first is the first
// line, or nil if there is none.
func newParser(o *Options, first []byte) (parser, error) {
	if o.Format == "" {
		if o.Format = formatOf(first); o.Format == "" {
			return nil, fmt.Errorf("%w: the first line is neither JSON nor of the common or "+
				"combined log format; if only that line is different, set the format",
				ratelimit.ErrInvalidOptions)
		}
	}
	if o.Format == JSONLines {
		o.KeyField, o.TimeField = orElse(o.KeyField, "key"), orElse(o.TimeField, "time")
		return newJSONParser(o.KeyField, o.TimeField, o.UnitsField), nil
	}
	o.KeyField = orElse(o.KeyField, "client")
	if err := o.validateFields(o.Format); err != nil {
		return nil, err
	}
	return newAccessParser(o.KeyField, o.UnitsField), nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// formatOf returns the format of a line, combined for a log without lines, or "".
func formatOf(line []byte) Format {
	var fields accessFields
	switch {
	case len(line) == 0:
		return Combined
	case bytes.HasPrefix(line, []byte("{")):
		return JSONLines
	case fields.split(line, true) == nil:
		return Combined
	case fields.split(line, false) == nil:
		return Common
	}
	return ""
}
