package headers

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
)

// The names of the fields, as [http.Header] has them.
const (
	fieldPolicy    = "Ratelimit-Policy"
	fieldRateLimit = "Ratelimit"
)

// A Unit is what a limit counts: the parameter qu of RateLimit-Policy. The empty Unit means
// requests.
type Unit string

// The units of draft-11, besides requests.
const (
	ContentBytes       Unit = "content-bytes"
	ConcurrentRequests Unit = "concurrent-requests"
)

// An Item is the result of a limit for a request.
type Item struct {
	Result ratelimit.Result
	// Unit is what the limit counts. The fields of [ConcurrentRequests] have no w, t or Reset,
	// because it is not known when calls in flight end.
	Unit Unit
}

// Write writes the fields of items in the format f to h.
//
// The fields of [Draft11] are lists, and Write adds to those that h has, so that an answer
// describes the limits of all middlewares. The fields of the other formats have one value, which
// Write replaces. Write does nothing without items, or for an unknown format.
//
// A result of [ratelimit.SourceOpen] says nothing about the units that remain, so Write writes only
// its limit. For a result of [ratelimit.SourceLocal], it writes this process's share of the limit
// as the limit.
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

// AppendPolicy appends the value of RateLimit-Policy of draft-11 to b: for each limit its name, q
// (units), w (the window in seconds, rounded up) and, if the limit does not count requests, qu (the
// unit). It leaves out limits whose name is empty or not printable ASCII.
func AppendPolicy(b []byte, items []Item) []byte {
	begin := len(b)
	for i := range items {
		it := &items[i]
		if !nameable(it.Result.Limit.Name) {
			continue
		}
		b = appendName(b, begin, it.Result.Limit.Name)
		b = appendInt(append(b, ";q="...), it.Result.Limit.Max)
		if it.Unit != ConcurrentRequests && it.Result.Limit.Window > 0 {
			b = appendInt(append(b, ";w="...), seconds(it.Result.Limit.Window))
		}
		if it.Unit != "" && nameable(string(it.Unit)) {
			b = appendString(append(b, ";qu="...), string(it.Unit))
		}
	}
	return b
}

// AppendRateLimit appends the value of RateLimit of draft-11 to b: for each limit its name, r
// (Remaining, in units) and t, in seconds rounded up. If the limit admits the request, t is
// ResetAfter, else RetryAfter. A t of 0 is left out. AppendRateLimit leaves out results of
// [ratelimit.SourceOpen], and the limits that [AppendPolicy] leaves out.
func AppendRateLimit(b []byte, items []Item) []byte {
	begin := len(b)
	for i := range items {
		it := &items[i]
		if it.Result.Source == ratelimit.SourceOpen || !nameable(it.Result.Limit.Name) {
			continue
		}
		b = appendName(b, begin, it.Result.Limit.Name)
		b = appendInt(append(b, ";r="...), it.Result.Remaining)
		if t := seconds(it.wait()); t > 0 && it.Unit != ConcurrentRequests {
			b = appendInt(append(b, ";t="...), t)
		}
	}
	return b
}

// wait returns how long Remaining is valid.
func (it *Item) wait() time.Duration {
	if it.Result.Allowed {
		return it.Result.ResetAfter
	}
	return it.Result.RetryAfter
}

// writeOne writes the fields of the limit that binds. It adds epoch to Reset.
func writeOne(h http.Header, prefix string, items []Item, epoch time.Duration) {
	it := &items[binding(items)]
	h.Set(prefix+"Limit", string(appendInt(nil, it.Result.Limit.Max)))
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

// appendInt appends n, limited to the range from 0 to maxInt.
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
	if strings.IndexByte(s, '"') < 0 && strings.IndexByte(s, '\\') < 0 {
		return append(append(b, s...), '"')
	}
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
