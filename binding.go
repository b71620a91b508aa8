package ratelimit

// Binding returns the index of the result that decides for a demand under several limits: the
// refusal with the longest RetryAfter or, if none is a refusal, the result with the least
// Remaining. Ties go to the one with the least Remaining, then to the longest ResetAfter, then to
// the first. It panics if results is empty.
func Binding(results []Result) int {
	best := 0
	for i := 1; i < len(results); i++ {
		if binds(results[i], results[best]) {
			best = i
		}
	}
	_ = results[best]
	return best
}

func binds(a, b Result) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}
