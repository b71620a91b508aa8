package rules

import (
	"cmp"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
)

// A Variant is a limit with one of its rates. All variants of a limit have its name and its
// algorithm, so they share its histories.
type Variant struct {
	Limit *Limit
	Rate  Rate
	// Algorithm decides. It is nil if Rate admits everything or nothing.
	Algorithm driver.Algorithm
	// Why says which rate it is, such as "max", "by plan=pro" or "except tenant=acme".
	Why string
	// Number counts the variants of a Set from 0, for tables beside it. It is -1 for those of
	// Set.Override.
	Number int
}

func newVariant(l *Limit, rate Rate, why string) (*Variant, error) {
	v := &Variant{Limit: l, Rate: rate, Why: why, Number: -1}
	name := cmp.Or(l.Algorithm, "log")
	if rate.Unlimited || rate.Units == 0 && name != algorithms.Block {
		return v, nil
	}
	limit := driver.Limit{Name: l.Name, Max: rate.Units, Window: rate.Window}
	a, err := algorithms.New(name, limit, l.Holds, l.Debt)
	if err != nil {
		return nil, err
	}
	v.Algorithm = a
	return v, nil
}

// textOf returns the text of an error about a limit, without what its position says already.
func textOf(err error) string {
	text := strings.TrimPrefix(err.Error(), driver.ErrInvalid.Error()+" ")
	return strings.TrimPrefix(text, "limit: ")
}
