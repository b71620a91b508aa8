package headers

import "time"

// A Quota is what the fields of an answer say about one limit of the client.
type Quota struct {
	// Name is the server's name of the limit, such as "burst", "tokens" or "core", or empty.
	Name string
	// Unit is what the limit counts. It is empty for requests, or if the fields do not say.
	Unit Unit
	// Limit is the number of units that the limit admits in its Window, or -1 if the fields do not
	// say.
	Limit int64
	// Window is the length of the limit's window, or 0 if the fields do not say.
	Window time.Duration
	// Remaining is the number of units that are left, or -1 if the fields do not say.
	Remaining int64
	// Reset is how long Remaining is valid. After it, some servers renew the whole quota; others
	// only no longer promise Remaining. It is 0 if that time is over or the fields do not say.
	Reset time.Duration
}

// unknown is a Quota before any field is read.
var unknown = Quota{Limit: -1, Remaining: -1}

// told reports whether the quota has a number of units.
func (q *Quota) told() bool { return q.Limit >= 0 || q.Remaining >= 0 }
