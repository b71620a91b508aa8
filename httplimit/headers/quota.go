package headers

import "time"

// A Quota is what the fields of an answer say about one limit of the client.
type Quota struct {
	// Name is the server's name of the limit, such as "burst", "tokens" or "core", or empty.
	Name string
	// Unit is what the limit counts: empty for requests, and for what the fields do not say.
	Unit Unit
	// Limit is the units that the limit admits in its Window, or -1 if the fields do not say.
	Limit int64
	// Window is the length of the limit's window, or 0 if the fields do not say.
	Window time.Duration
	// Remaining is the units that are left, or -1 if the fields do not say.
	Remaining int64
	// Reset is how long Remaining is meant for: the server renews the quota then, or promises no
	// more than Remaining until then. It is 0 if that is now or the fields do not say.
	Reset time.Duration
}

// unknown is a Quota of which the fields have said nothing yet.
var unknown = Quota{Limit: -1, Remaining: -1}

// told reports whether the quota has a number of units.
func (q *Quota) told() bool { return q.Limit >= 0 || q.Remaining >= 0 }
