package replay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/driver"
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
	errBlank     = errors.New("blank")
	errTooLong   = errors.New("longer than 1 MiB")
	errSyntax    = errors.New("not in the format of the log")
	errNoClient  = errors.New("no client before the time: a word, then a hyphen or an identity")
	errNoAddress = errors.New("the client is neither an address nor the name of a host")
	errNoKey     = errors.New("no key")
	errBadKey    = errors.New("the key is an object or a list, not text")
	errLongKey   = errors.New("the key is longer than 1 KiB")
	errNoTime    = errors.New("no time")
	errBadTime   = errors.New("the time cannot be read")
	errNoUnits   = errors.New("no units")
	errBadUnits  = errors.New("the units are not an integer from 0 to 2^40")

	errNoForwarded = errors.New("no X-Forwarded-For between quotation marks after the user agent")
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
	return fmt.Errorf("%w options: %q is not a format; the formats are json, common and combined",
		driver.ErrInvalid, string(o.Format))
}

// validateFields reports an option for a field that lines of an access log do not have.
func (o *Options) validateFields(f Format) error {
	names := fieldNames[:commonFields]
	if f == Combined {
		names = fieldNames[:]
	}
	for _, field := range []string{o.KeyField, o.UnitsField} {
		if field != "" && !slices.Contains(names, field) {
			return fmt.Errorf("%w options: the %s format has no field %q; it has: %s",
				driver.ErrInvalid, f, field, strings.Join(names, ", "))
		}
	}
	if o.TimeField != "" {
		return fmt.Errorf("%w options: the %s format has a time of its own and needs no time field",
			driver.ErrInvalid, f)
	}
	return nil
}

// newParser returns the parser of a log, and sets the options that are empty. begin has the first
// lines.
func newParser(o *Options, begin []byte) (parser, error) {
	if problem := unsupported(o, begin); problem != "" {
		return nil, fmt.Errorf("%w options: %s", driver.ErrInvalid, problem)
	}
	if o.Format == "" {
		if o.Format = formatOf(begin); o.Format == "" {
			return nil, fmt.Errorf("%w options: the first lines are neither JSON nor of the "+
				"common or combined log format; if only these are different, set the format; "+
				"the first is %s",
				driver.ErrInvalid, excerpt(firstLine(begin)))
		}
	}
	addresses := newAddresses(o.TrustedProxies)
	if o.Format == JSONLines {
		o.KeyField, o.TimeField = orElse(o.KeyField, "key"), orElse(o.TimeField, "time")
		return newJSONParser(o.KeyField, o.TimeField, o.UnitsField, addresses), nil
	}
	o.KeyField = orElse(o.KeyField, "client")
	if err := o.validateFields(o.Format); err != nil {
		return nil, err
	}
	return newAccessParser(o.KeyField, o.UnitsField, addresses), nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// formatOf returns the format of the first line that has one, combined for a log without lines, or
// "".
func formatOf(begin []byte) (f Format) {
	f = Combined
	for line := range bytes.Lines(begin) {
		var fields accessFields
		var object jsonParser
		switch line = cleaned(line); {
		case len(line) == 0:
			continue
		case line[0] == '{':
			return JSONLines
		case fields.split(line, fieldAgent) == nil:
			return Combined
		case fields.split(line, fieldBytes) == nil:
			return Common
		case object.object(line, objectIn(line), &object.paths) > 0:
			return JSONLines
		}
		f = ""
	}
	return f
}

// firstLine returns the first line that is not blank, or nil.
func firstLine(begin []byte) []byte {
	for line := range bytes.Lines(begin) {
		if line = bytes.TrimSpace(cleaned(line)); len(line) > 0 {
			return line
		}
	}
	return nil
}
