package fieldstest

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/truewindow/ratelimit/httplimit/headers"
)

// FuzzParse: Parse finds in RateLimit-Policy and RateLimit what a reader built on another
// Structured Fields library finds, by the rules of the drafts 07 to 11.
func FuzzParse(f *testing.F) {
	for _, seed := range [][2]string{
		{`"hour";q=1000;w=3600, "day";q=5000;w=86400`, `"day";r=100;t=36000`},
		{`"p";q=9;w=60;pk=:YQ==:, "p";q=8;pk=:Yg==:`, `"p";r=1;pk=:Yg==:`},
		{`"a\"\\";q=1;qu="content-bytes";x=?1;y=@5;z=%"%c3%a9";v=1.5;w`, `tok;r=1;*k.1=-5`},
		{`10;w=1, 50;w=60`, `limit=100, remaining=50;x=1, reset=5`},
		{`"a";q=1 , "b";q=2`, ` "a";r=1 ,	"b"; r=2;r=3 `},
		{`"a";q=1,`, `("a" "b");r=1`},
		{`"a";q=1000000000000000`, `"a";r=-1`},
		{`"a";q=1;w=1234567890123.1`, `limit=1, limit=2, remaining`},
	} {
		f.Add(seed[0], seed[1])
	}
	now := time.Now()
	f.Fuzz(func(t *testing.T, policy, limits string) {
		for _, s := range []string{policy, limits} {
			// Parse limits its input, and the other library accepts base64 with line breaks.
			if len(s) > 1000 || strings.Count(s, ",") > 60 || strings.ContainsAny(s, "\r\n") {
				t.Skip()
			}
		}
		h := http.Header{"Ratelimit-Policy": {policy}, "Ratelimit": {limits}}
		got, want := headers.Parse(h, now), expectQuotas(policy, limits)
		if !slices.Equal(got, want) {
			t.Errorf("policy %q, limits %q: got\n%+v\nwant\n%+v", policy, limits, got, want)
		}
	})
}

// expectQuotas returns the expected quotas: first those of RateLimit, then the policies without
// one.
func expectQuotas(policy, limits string) (quotas []headers.Quota) {
	policies, told := readPolicies(policy), map[int]bool{}
	for _, it := range readItems(limits, "r", "t") {
		q := headers.Quota{Name: it.name, Limit: -1}
		for i, p := range policies {
			if p.name == it.name && (p.partition == it.partition || p.partition == "") {
				q.Limit, q.Window, q.Unit, told[i] = p.required, p.span, p.unit, true
				break
			}
		}
		q.Remaining, q.Reset = it.required, it.span
		quotas = append(quotas, q)
	}
	for i, p := range policies {
		if !told[i] {
			quotas = append(quotas, headers.Quota{Name: p.name, Unit: p.unit, Limit: p.required,
				Window: p.span, Remaining: -1})
		}
	}
	if q, ok := readDictionary(limits); ok {
		q.Window = windowOf(policy, q.Limit)
		quotas = append(quotas, q)
	}
	return quotas
}

// named is an item of either field.
type named struct {
	name, partition string
	required        int64 // parameter q or r
	span            time.Duration
	unit            headers.Unit
}

// malformed is not a valid unit: a String cannot contain this byte.
const malformed headers.Unit = "\x00"

func readPolicies(field string) []named {
	items := readItems(field, "q", "w")
	for _, it := range items {
		if it.unit == malformed {
			return nil
		}
	}
	return items
}

// readItems returns the items of a list, or nil if one of them is invalid.
func readItems(field, required, span string) (items []named) {
	list, err := httpsfv.UnmarshalList([]string{field})
	if err != nil {
		return nil
	}
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			return nil
		}
		var it named
		switch v := item.Value.(type) {
		case string:
			it.name = v
		case httpsfv.Token:
			it.name = string(v)
		default:
			return nil
		}
		number, found := natural(item.Params, required)
		if !found {
			return nil
		}
		it.required = number
		if _, has := item.Params.Get(span); has {
			if number, found = natural(item.Params, span); !found {
				return nil
			}
			it.span = duration(number)
		}
		if pk, _ := item.Params.Get("pk"); pk != nil {
			if b, ok := pk.([]byte); ok {
				it.partition = string(b)
			}
		}
		it.unit = unitOf(item.Params)
		items = append(items, it)
	}
	return items
}

func unitOf(params *httpsfv.Params) headers.Unit {
	v, found := params.Get("qu")
	if !found {
		return ""
	}
	name, ok := v.(string)
	if token, is := v.(httpsfv.Token); is {
		name, ok = string(token), true
	}
	switch {
	case !ok:
		return malformed
	case name == "requests" || name == "request":
		return ""
	}
	return headers.Unit(name)
}

func readDictionary(field string) (q headers.Quota, ok bool) {
	d, err := httpsfv.UnmarshalDictionary([]string{field})
	if err != nil {
		return q, false
	}
	numbers := map[string]int64{}
	for _, name := range d.Names() {
		m, _ := d.Get(name)
		item, ok := m.(httpsfv.Item)
		if !ok {
			return q, false
		}
		if n, ok := item.Value.(int64); ok && n >= 0 {
			numbers[name] = n
		}
	}
	limit, limited := numbers["limit"]
	remaining, remains := numbers["remaining"]
	if !limited {
		limit = -1
	}
	if !remains {
		remaining = -1
	}
	return headers.Quota{Limit: limit, Remaining: remaining, Reset: duration(numbers["reset"])},
		limited || remains
}

// windowOf returns the first window that a list of policies has for a limit.
func windowOf(policy string, limit int64) time.Duration {
	list, _ := httpsfv.UnmarshalList([]string{policy})
	for _, m := range list {
		if _, ok := m.(httpsfv.Item); !ok {
			return 0
		}
	}
	for _, m := range list {
		item := m.(httpsfv.Item)
		w, found := item.Params.Get("w")
		n, ok := w.(int64)
		if v, isInt := item.Value.(int64); found && ok && isInt && v == limit {
			return duration(max(0, n))
		}
	}
	return 0
}

func natural(params *httpsfv.Params, key string) (int64, bool) {
	v, _ := params.Get(key)
	n, ok := v.(int64)
	return n, ok && n >= 0
}

// duration returns seconds as a Duration, or the longest Duration.
func duration(seconds int64) time.Duration {
	if seconds > math.MaxInt64/1_000_000_000 {
		return math.MaxInt64 / 1_000_000_000 * 1_000_000_000
	}
	return time.Duration(seconds) * time.Second
}
