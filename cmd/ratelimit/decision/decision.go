// Package decision decides requests under the limits of the service.
//
// A protocol translates: it makes a [Request] of each descriptor of a call, has a [Decider] decide
// them, and writes the [Decision] in its own form.
package decision

import (
	"context"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// A Request asks for units under all limits that match a descriptor, or under one that it names.
type Request struct {
	Domain     string // of Envoy's files; see [rules.Limit]
	Descriptor rules.Descriptor
	// Limit, if not empty, is the name of the only limit, whatever its conditions, and Key the key
	// of the store. Entries of the key are those that the limit's Key has; the Descriptor has
	// others. More units than the limit ever admits are an error then, unless it admits or records
	// them all the same, and n calls in flight count as n.
	Limit, Key string
	// N is the number of units, of which a limit of calls in flight that is not named counts one at
	// most. 0 takes none, and asks whether a unit is free. More than a limit ever admits is
	// refused.
	N int64
	// Used means that the units were used before the call, as those that Envoy reports when a
	// stream ends. Limits with Quota record them, whether they fit or not.
	Used bool
	// Override, if not nil, is the rate of this request under all limits that match. What was
	// recorded under another rate counts.
	Override *rules.Rate
}

// Options say how the requests of a call are decided. The zero Options take the units of all
// requests, or of none.
type Options struct {
	// Each decides each request alone, in order, as envoyproxy/ratelimit does: a request that is
	// refused does not keep the others from being charged. It excludes Hold.
	Each bool
	// Together makes it an error, which wraps [errors.ErrUnsupported], if the store cannot decide
	// all limits together. Otherwise they are decided one by one then.
	Together bool
	// Reached admits an N of 0 as envoyproxy/ratelimit does: until more units were recorded than
	// the limit admits. Buckets, blocks and calls in flight ignore it.
	Reached bool
	// Always charges all limits as those with Always are: also what does not fit, which is refused.
	// More units than a limit can record are charged as the most that it can. It excludes Hold.
	Always bool
	// NoInFlight leaves out limits of calls in flight, for protocols that do not say when a call
	// ends.
	NoInFlight bool
	// Peek takes nothing, and reports what Decide would: Allowed is the same, and the Remaining
	// of a [Status] includes the units. A limit with Always is as others. Limits are asked also if
	// others refuse. It excludes Hold.
	Peek bool
	// Force records the units under all limits, whether they fit or not, as those with Always do.
	// Blocks, which record no units, are not asked. It excludes Peek and Hold.
	Force bool
	// Hold, if not nil, is how long units are held instead of taken; 0 is as long as each limit
	// says. Limits without holds are charged at once, for good.
	Hold *time.Duration
	// MostHeld, if not 0, is how many limits and keys an ID may have. More are an [ErrMostHeld],
	// and nothing is charged.
	MostHeld int
	// MayUse, if not nil, reports whether the caller may use a limit, by its name. One that applies
	// and that the caller may not use is an [ErrNotAllowed], and nothing is charged.
	MayUse func(limit string) bool
	// Estimate, with a Hold, makes each limit hold what it can: at most its Max, one call in
	// flight, and a Hold in its range. If no limit holds units, it is a Peek.
	Estimate bool
	// Wait is how long a call with a Hold waits until all units are free. Under limits with Quota
	// no call waits.
	Wait time.Duration
	// Client, if not nil, ends such a wait early when it ends, because the client has left.
	Client context.Context
	// Stop, if not nil, ends such a wait early too: the call is decided when it ends.
	Stop context.Context
}

// A Decision is the answer to the requests of a call.
type Decision struct {
	// ID settles and renews what is held; see [Decider.Resume]. It is empty if nothing is held.
	ID string
	// Allowed reports whether no limit refused, where limits with Quota refuse only all together.
	// Otherwise nothing was taken, except under limits with Always, of what was used before, and by
	// requests that were decided alone.
	Allowed bool
	Parts   []Part // one for each request, in order
}

// A Part is the answer to one request.
type Part struct {
	// Statuses has the limits that apply to the request, in the order of the configuration. It is
	// empty if there are none, and the request is then allowed.
	Statuses []Status
}

// A Status is how one limit decided a request. If requests of a call have the same limit and key,
// their units are decided as one number, and their statuses are equal.
type Status struct {
	Limit *rules.Limit
	Rate  rules.Rate // that of the variant, or of [Request.Override]
	Key   string     // of the store; user data
	// Allowed reports whether the units fitted. It is true if the limit was not asked, and false
	// for a limit with Shadow or Always that was exceeded, or with Quota that has no room.
	Allowed bool
	// Shadow means that the limit only tries: the Decision does not count it.
	Shadow bool
	// Never means that the units can never be admitted, so that waiting does not help: the rate has
	// no units, or fewer than were asked for.
	Never bool
	// Warned means that at least [rules.Limit].Warn of the units are used, after the decision.
	Warned bool
	// Asked means that the store has decided. Without it the Result has only Limit, Allowed and
	// Remaining. Except by a peek, no enforced limit is asked if one of them is Never or a limit
	// with Always was exceeded, and no limit with Shadow if an enforced one refuses. A limit whose
	// rate is unlimited is never asked; its Remaining is driver.MaxUnits.
	Asked  bool
	Result ratelimit.Result
}
