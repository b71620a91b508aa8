package headers

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/truewindow/ratelimit"
)

// The names of the fields, as [http.Header] has them.
const (
	fieldPolicy    = "Ratelimit-Policy"
	fieldRateLimit = "Ratelimit"
)

// A Unit is what a limit counts, the parameter qu of RateLimit-Policy. The empty one is a request.
type Unit string

// The units of draft-11 beside a request.
const (
	ContentBytes       Unit = "content-bytes"
	ConcurrentRequests Unit = "concurrent-requests"
)

// An Item is a limit and its result.
type Item struct {
	Limit  ratelimit.Limit
	Result ratelimit.Result
	// Unit is what the limit counts. Calls in flight have neither w nor t nor a Reset, since it is
	// not known when they end.
	Unit Unit
}

// Write writes the fields of items in the format f to h.
//
// The fields of [Draft11] are lists, and Write adds lines to those that h has, so that an answer
// has the limits of all middlewares. Fields of the other formats have one value, which Write
// replaces. Without items, and for an unknown format, it writes nothing.
//
// Of a decision of [ratelimit.SourceOpen] only the limit is known, and only it is written. Of one
// of [ratelimit.SourceLocal] the limit is the share of this process, which is what the request was
// held to.
func Write(h http.Header, f Format, items ...Item) {
	if len(items) == 0 {
		return
	}
	switch f {
	case Draft11:
		var room [256]byte
		if b := AppendPolicy(room[:0], items); len(b) > 0 {
			h[fieldPolicy] = append(h[fieldPolicy], string(b))
		}
		if b := AppendRateLimit(room[:0], items); len(b) > 0 {
			h[fieldRateLimit] = append(h[fieldRateLimit], string(b))
		}
	case Draft06:
		writeOne(h, "Ratelimit-", items, 0)
	case XDelta:
		writeOne(h, "X-Ratelimit-", items, 0)
	case XEpoch:
		writeOne(h, "X-Ratelimit-", items, time.Duration(time.Now().UnixNano()))
	}
}

// AppendPolicy appends the value of RateLimit-Policy of draft-11 to b: name, q, w and qu of each
// limit. Limits that have no name, or one that is not printable ASCII, are left out.
func AppendPolicy(b []byte, items []Item) []byte {
	begin := len(b)
	for i := range items {
		it := &items[i]
		if !nameable(it.Limit.Name) {
			continue
		}
		b = appendName(b, begin, it.Limit.Name)
		b = appendInt(append(b, ";q="...), it.quota())
		if it.Unit != ConcurrentRequests && it.Limit.Window > 0 {
			b = appendInt(append(b, ";w="...), seconds(it.Limit.Window))
		}
		if it.Unit != "" && nameable(string(it.Unit)) {
			b = appendString(append(b, ";qu="...), string(it.Unit))
		}
	}
	return b
}

// AppendRateLimit appends the value of RateLimit of draft-11 to b: name, r and t of each limit. r
// is Remaining. t is ResetAfter if the limit admits the request, and RetryAfter if it refuses it,
// in seconds rounded up; a t of 0 is left out. Decisions of [ratelimit.SourceOpen], and the limits
// that [AppendPolicy] leaves out, are left out.
func AppendRateLimit(b []byte, items []Item) []byte {
	begin := len(b)
	for i := range items {
		it := &items[i]
		if it.Result.Source == ratelimit.SourceOpen || !nameable(it.Limit.Name) {
			continue
		}
		b = appendName(b, begin, it.Limit.Name)
		b = appendInt(append(b, ";r="...), it.Result.Remaining)
		if t := seconds(it.wait()); t > 0 && it.Unit != ConcurrentRequests {
			b = appendInt(append(b, ";t="...), t)
		}
	}
	return b
}

// quota returns the units that the request was held to.
func (it *Item) quota() int64 {
	if it.Result.Source == ratelimit.SourceLocal && it.Result.Limit > 0 {
		return it.Result.Limit
	}
	return it.Limit.Max
}

// wait returns the time for which Remaining is meant.
func (it *Item) wait() time.Duration {
	if it.Result.Allowed {
		return it.Result.ResetAfter
	}
	return it.Result.RetryAfter
}

// writeOne writes the fields of the limit that binds. Their Reset counts from the time epoch.
func writeOne(h http.Header, prefix string, items []Item, epoch time.Duration) {
	it := &items[binding(items)]
	h.Set(prefix+"Limit", string(appendInt(nil, it.quota())))
	if it.Result.Source == ratelimit.SourceOpen {
		h.Del(prefix + "Remaining")
		h.Del(prefix + "Reset")
		return
	}
	h.Set(prefix+"Remaining", string(appendInt(nil, it.Result.Remaining)))
	if it.Unit == ConcurrentRequests {
		h.Del(prefix + "Reset")
		return
	}
	reset := min(it.wait(), math.MaxInt64-epoch) + epoch
	h.Set(prefix+"Reset", string(appendInt(nil, seconds(reset))))
}

func binding(items []Item) int {
	results := make([]ratelimit.Result, len(items))
	for i := range items {
		results[i] = items[i].Result
	}
	return ratelimit.Binding(results)
}

// maxInt is the largest Integer of RFC 9651.
const maxInt = 999_999_999_999_999

// appendInt appends n, or the nearest of 0 and maxInt.
func appendInt(b []byte, n int64) []byte {
	return strconv.AppendInt(b, max(0, min(n, maxInt)), 10)
}

// seconds returns d in whole seconds, rounded up; 0 for a negative d.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// nameable reports whether s can be written as a String of RFC 9651, and is not empty.
func nameable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// appendName begins an item of the list that begins at b[begin].
func appendName(b []byte, begin int, name string) []byte {
	if len(b) > begin {
		b = append(b, ", "...)
	}
	return appendString(b, name)
}

// appendString appends s as a String of RFC 9651.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
