package rules

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
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
	// Settles has the same history as Algorithm, and the debt of the rate that may owe the most
	// units: an ID does not say under which rate its units were held.
	Settles driver.Algorithm
	// Why says which rate it is, such as "max", "by plan=pro" or "except tenant=acme".
	Why string
	// Until is that of its Exception; zero: it does not end. At is where it is.
	Until time.Time
	At    Position
	// Number counts the variants of a Set from 0, for tables beside it. It is -1 for those of
	// Set.Override.
	Number int
}

// newVariant returns a variant that has the debt if it is a bucket.
func newVariant(l *Limit, rate Rate, debt time.Duration, why string) (*Variant, error) {
	v := &Variant{Limit: l, Rate: rate, Why: why, Number: -1}
	name := cmp.Or(l.Algorithm, "log")
	if rate.Unlimited || rate.Units == 0 && name != algorithms.Block {
		return v, nil
	}
	limit := driver.Limit{Name: l.Name, Max: rate.Units, Window: rate.Window}
	a, err := algorithms.New(name, limit, algorithms.Options{
		Holds: l.Holds, Charges: l.ChargesTimeouts, Debt: debt, Offset: l.Offset,
		Starts: cmp.Or(rate.Starts, l.Rate.Starts)})
	if err != nil {
		return nil, err
	}
	v.Algorithm, v.Settles = a, a
	return v, nil
}

// leastDebt is the least debt of a bucket that has no other: what is charged by mistake, such as
// thousandths for units, is over in an hour, and what costs several windows is still paid for.
const leastDebt = time.Hour

// debt returns that of a bucket. It is not less than the Window of any rate, so that a request
// under one rate leaves what was spent under another one.
func (l *Limit) debt() time.Duration {
	if l.Debt != 0 {
		return l.Debt
	}
	longest := max(l.Rate.Window, leastDebt)
	if l.By != nil {
		for _, r := range l.By.Rates {
			longest = max(longest, r.Window)
		}
	}
	for _, e := range l.Except {
		longest = max(longest, e.Rate.Window)
	}
	return longest
}

// settleAll sets how variants of a limit are settled.
func settleAll(variants []*Variant) {
	var most float64 // units
	for _, v := range variants {
		if b, ok := bucketOf(v); ok {
			most = max(most, float64(b.Debt())/float64(b.Limit().Window)*float64(b.Limit().Max))
		}
	}
	for _, v := range variants {
		b, ok := bucketOf(v)
		if !ok {
			continue
		}
		limit := b.Limit()
		debt := most / float64(limit.Max) * float64(limit.Window.Microseconds())
		if debt <= float64(b.Debt().Microseconds()) {
			continue
		}
		debt = min(math.Ceil(debt), float64(algorithm.GCRA(limit).Debt().Microseconds()))
		held := v.Algorithm.(algorithm.Held)
		settles := algorithm.Budget(b.WithDebt(time.Duration(debt) * time.Microsecond)).
			WithTimeout(held.HoldTimeout())
		if held.ChargesTimeouts() {
			settles = settles.ChargeTimeouts()
		}
		v.Settles = settles
	}
}

// bucketOf returns the bucket of a variant whose units can be held.
func bucketOf(v *Variant) (b algorithm.Bucket, ok bool) {
	if held, holds := v.Algorithm.(algorithm.Held); holds {
		b, ok = held.Inside().(algorithm.Bucket)
	}
	return b, ok
}

// textOf returns the text of an error about a limit, without what its position says already.
func textOf(err error) string {
	text := strings.TrimPrefix(err.Error(), driver.ErrInvalid.Error()+" ")
	return strings.TrimPrefix(text, "limit: ")
}
