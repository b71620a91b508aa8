package conformance

import (
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// Answers reports whether Results are those that the algorithm returned, or cached refusals that
// promise no more: no longer RetryAfter, no more Remaining.
func (op Operation) Answers(returned []driver.Result) bool {
	return sameAll(op.Results, returned)
}

// same reports whether a store's result is the one that the step returned, or a cached refusal that
// promises no more.
func same(got, want driver.Result) bool {
	if got.Source != driver.SourceCache {
		return got.Source == want.Source && got.Allowed == want.Allowed &&
			got.Limit == want.Limit && got.Remaining == want.Remaining &&
			got.Units == want.Units && got.RetryAfter == want.RetryAfter &&
			got.ResetAfter == want.ResetAfter
	}
	waits := 0 < got.RetryAfter && got.RetryAfter <= want.RetryAfter
	if want.Allowed {
		waits = got.RetryAfter == 0
	}
	return waits && got.Allowed == want.Allowed && got.Limit == want.Limit && got.Units == 0 &&
		got.ResetAfter <= want.ResetAfter && 0 <= got.Remaining && got.Remaining <= want.Remaining
}

// sameAll reports whether the results of a store are those that the steps returned, all of them, or
// those of a cached refusal that promises no more.
func sameAll(got, want []driver.Result) bool {
	if !slices.EqualFunc(got, want, same) {
		return false
	}
	for i := range got {
		cached := got[i].Source == driver.SourceCache
		if cached != (got[0].Source == driver.SourceCache) || cached && allowed(want) {
			return false
		}
	}
	return true
}

func allowed(results []driver.Result) bool {
	for i := range results {
		if !results[i].Allowed {
			return false
		}
	}
	return true
}
