package conformance

import (
	"bytes"
	"compress/flate"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// keyed returns a bug that replaces the key by another.
func keyed(change func(key string) string) bugs {
	return identify(func(_ driver.Demand, id *identity) { id.key = change(id.key) })
}

// hashed returns a bug that replaces the key by the low bits of a hash.
func hashed(bits int) bugs {
	seed := maphash.MakeSeed()
	return keyed(func(key string) string {
		return fmt.Sprint(maphash.String(seed, key) % (1 << bits))
	})
}

// compressed is what a database keeps of a long key.
func compressed(key string) string {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		panic(err)
	}
	w.Write([]byte(key))
	w.Close()
	return b.String()
}

// joined returns a bug that puts the parts of an identity into one string. k, l and a in layout
// stand for the key, the limit's name and the algorithm's name, K, L and A for their lengths.
func joined(layout string) bugs {
	return identify(func(_ driver.Demand, id *identity) {
		parts := strings.NewReplacer("k", id.key, "l", id.limit, "a", id.algorithm,
			"K", fmt.Sprint(len(id.key)), "L", fmt.Sprint(len(id.limit)),
			"A", fmt.Sprint(len(id.algorithm)))
		key := parts.Replace(layout)
		if *id = (identity{key: key, algorithm: id.algorithm}); strings.Contains(layout, "a") {
			id.algorithm = ""
		}
	})
}

// reaching returns a bug: a reset deletes all states whose keys match.
func reaching(match func(of, key string) bool) bugs {
	return bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
		if d.Op == driver.OpReset {
			r.mu.Lock()
			maps.DeleteFunc(r.states, func(id identity, _ cell) bool {
				mine := identityOf(d)
				mine.key = id.key
				return id == mine && match(d.Key, id.key)
			})
			r.mu.Unlock()
		}
		return r.one(d)
	}}
}

// like reports whether key matches a pattern of SQL.
func like(pattern, key string) bool {
	expr := strings.NewReplacer("%", ".*", "_", ".").Replace(regexp.QuoteMeta(pattern))
	ok, err := regexp.MatchString("^(?s:"+expr+")$", key)
	return ok && err == nil
}

func joinFaults() (faults []fault) {
	for _, layout := range []string{"x:l:k", "k:l:a", "{k}:l", "{k}l", "l/k", "k|a|l", "a#l#k",
		"l:a:k", "k\x00l\x00a", "a\x1fk\x1fl", "l k a", "k\tl\ta", "lk", "kla", "l::k", "k-l",
		"l_k", "k.l", "Llk", "Kkl", "LlKk", "KkLla", "Aakl"} {
		faults = append(faults, fault{name: fmt.Sprintf("states by %q", layout), always: true,
			rules: "identity/joined-names", bugs: joined(layout)})
	}
	return faults
}

var keyFaults = []fault{
	{name: "the limit's name omitted if empty", always: true, rules: "identity/joined-names",
		bugs: identify(func(_ driver.Demand, id *identity) {
			if id.limit != "" {
				id.key += ":" + id.limit
			}
			id.limit = ""
		})},
	{name: "names of limits cut at 32 bytes", always: true, rules: "identity/limit-names",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.limit = id.limit[:min(len(id.limit), 32)]
		})},
	{name: "names of limits cut at 63 bytes", always: true, rules: "identity/limit-names",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.limit = id.limit[:min(len(id.limit), 63)]
		})},
	{name: "names of algorithms cut at 64 bytes", always: true, rules: "identity/algorithm-names",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.algorithm = id.algorithm[:min(len(id.algorithm), 64)]
		})},
	{name: "reset by prefix", always: true, rules: "op/reset",
		bugs: reaching(func(of, key string) bool { return strings.HasPrefix(key, of) })},
	{name: "reset by a pattern of shells", always: true, rules: "op/reset",
		bugs: reaching(func(of, key string) bool {
			ok, err := path.Match(of, key)
			return ok && err == nil
		})},
	{name: "reset of limits that match", always: true, rules: "op/reset",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			if d.Op == driver.OpReset {
				r.mu.Lock()
				maps.DeleteFunc(r.states, func(id identity, _ cell) bool {
					return id.key == d.Key && like(d.Algorithm.Limit().Name, id.limit)
				})
				r.mu.Unlock()
			}
			return r.one(d)
		}}},
	{name: "reset by LIKE", always: true, rules: "op/reset", bugs: reaching(like)},
	{name: "leading dollar sign dropped", always: true, rules: "identity/every-byte",
		bugs: keyed(func(key string) string { return strings.TrimPrefix(key, "$") })},
	{name: "quotation marks dropped", always: true, rules: "identity/every-byte",
		bugs: keyed(func(key string) string {
			if unquoted, err := strconv.Unquote(key); err == nil {
				return unquoted
			}
			return key
		})},
	{name: "states by a random hash of 32 bits", always: true, rules: "identity/many-keys",
		bugs: hashed(32)},
	{name: "states by a random hash of 16 bits", always: true, rules: "identity/many-keys",
		bugs: hashed(16)},
	{name: "states evicted beyond 1,000 keys", always: true, rules: "identity/many-keys",
		bugs: bugs{put: func(r *reference, id identity, now int64, s step) {
			if s.err != nil || s.keep <= 0 {
				return
			}
			r.write(id, now, s)
			for other := range r.states {
				if len(r.states) <= 1000 {
					break
				}
				delete(r.states, other)
			}
		}}},
	{name: "no room is any error", always: true, rules: "identity/many-keys",
		bugs: bounded(10_000, driver.ErrUnavailable)},
	{name: "keys cut at 100,000 bytes", always: true, rules: "identity/long-keys",
		bugs: keyed(func(key string) string { return key[:min(len(key), 100_000)] })},
	{name: "compressed keys cut at 2,700 bytes", always: true, rules: "identity/long-keys",
		bugs: keyed(func(key string) string {
			if len(key) < 2000 {
				return key
			}
			key = compressed(key)
			return key[:min(len(key), 2700)]
		})},
	{name: "no compressed keys above 2,700 bytes", always: true, rules: "identity/long-keys",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			if len(d.Key) > 2000 && len(compressed(d.Key)) > 2700 {
				return step{err: driver.ErrUnavailable}
			}
			return r.one(d)
		}}},
	{name: "keys of seven bits", always: true, rules: "identity/every-byte",
		bugs: keyed(func(key string) string {
			seven := []byte(key)
			for i := range seven {
				seven[i] &= 0x7f
			}
			return string(seven)
		})},
	{name: "keys as paths", always: true, rules: "identity/similar-keys", bugs: keyed(path.Clean)},
	{name: "keys folded", always: true, rules: "identity/similar-keys",
		bugs: keyed(func(key string) string { return strings.ToLower(strings.ToUpper(key)) })},
	{name: "key in the error of a late deadline", always: true,
		rules: "identity/no-key-in-errors", bugs: keyInCommit},
	{name: "key in the error of a call that ends midway", always: true,
		rules: "identity/no-key-in-errors",
		bugs: bugs{take: func(r *reference, ctx context.Context, d driver.Demand) step {
			if err := ctx.Err(); err != nil {
				return step{err: fmt.Errorf("%w: take of %q: %w",
					driver.ErrUnavailable, d.Key, err)}
			}
			return r.one(d)
		}}},
}

// keyInCommit is a bug: calls last 8 ms, and the error of a deadline in the last 2 ms has the key.
var keyInCommit = bugs{take: func(r *reference, ctx context.Context, d driver.Demand) step {
	for _, phase := range []string{"", d.Key} {
		work := 2 * time.Millisecond
		if phase == "" {
			work = 6 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return step{err: fmt.Errorf("%w: %s: %w", driver.ErrUnavailable, phase, ctx.Err())}
		case <-time.After(work):
		}
	}
	return r.one(d)
}}

// bounded returns a bug: a store that holds at most that many states, and returns err for a new
// one.
func bounded(states int, err error) bugs {
	full := func(r *reference, d driver.Demand) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, ok := r.states[identityOf(d)]
		return !ok && len(r.states) >= states
	}
	return bugs{
		take: func(r *reference, _ context.Context, d driver.Demand) step {
			if full(r, d) {
				return step{err: err}
			}
			return r.one(d)
		},
		all: func(
			r *reference, _ context.Context, ds []driver.Demand, out []driver.Result,
		) error {
			for _, d := range ds {
				if full(r, d) {
					return err
				}
			}
			return r.several(ds, out)
		},
	}
}

// hashFaults are stores that replace the key by a hash with known collisions.
func hashFaults() (faults []fault) {
	for name, sum := range knownSums() {
		faults = append(faults, fault{name: "states by " + name, always: true,
			rules: "identity/hashed-keys",
			bugs:  keyed(func(key string) string { return fmt.Sprint(sum(key)) })})
	}
	return faults
}

// TestBoundedStore checks that a store may be bounded. The suite accepts ErrCapacity for a new key.
func TestBoundedStore(t *testing.T) {
	if err := tryRule(t, newReference(bounded(20_000, driver.ErrCapacity)), nil,
		"identity/many-keys"); err != nil {
		t.Error(err)
	}
	if err := tryRule(t, newReference(bounded(0, driver.ErrCapacity)), nil,
		"identity/many-keys"); err == nil {
		t.Error("a store without room for a key passes")
	}
}
