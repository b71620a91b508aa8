package layer_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// secret returns the shortest secret, whose first byte is c.
func secret(c byte) []byte {
	s := make([]byte, layer.MinSecret)
	s[0] = c
	return s
}

// upToSlash is what "tag=/" in a URL makes the Tag of a store.
func upToSlash(key string) string {
	if tag, _, ok := strings.Cut(key, "/"); ok {
		return tag
	}
	return ""
}

// hashesOf returns what the store inside gets for each key.
func hashesOf(
	t *testing.T, secret []byte, tag func(string) string, keys ...string,
) (hashes []string) {
	t.Helper()
	r := &recorder{Store: newOutage(t)}
	s, err := layer.NewHashedKeys(r, secret)
	if err != nil {
		t.Fatal(err)
	}
	s = s.WithTag(tag)
	clear(secret) // it has a copy
	for _, key := range keys {
		if _, err := s.Take(t.Context(), unit(key)); err != nil {
			t.Fatal(err)
		}
	}
	return r.keys
}

// TestHashedKeys: a key of any length becomes the documented hash, and one with a tag begins with
// the hash of the tag.
func TestHashedKeys(t *testing.T) {
	of := func(kind, text string) string {
		mac := hmac.New(sha256.New, secret('s'))
		mac.Write([]byte(kind + text))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
	}
	keys := []string{"a", "tenant/a", "tenant/b", "tenant", "/a", "tenant/", "\x00", "other/a"}
	for _, n := range []int{254, 255, 256, 257, 510, 511, 512, 64 << 10} {
		keys = append(keys, strings.Repeat("k", n), strings.Repeat("l/", n/2))
	}
	plain := hashesOf(t, secret('s'), nil, keys...)
	tagged := hashesOf(t, secret('s'), upToSlash, keys...)
	for i, key := range keys {
		if want := of("t", key); plain[i] != want {
			t.Errorf("%.20q is %q inside, want %q", key, plain[i], want)
		}
		want, wantTag := of("t", key), ""
		if tag := upToSlash(key); tag != "" {
			wantTag = of("t", tag)
			want = wantTag + "/" + of("k", key)
		}
		if tagged[i] != want || layer.HashedTag(tagged[i]) != wantTag {
			t.Errorf("%.20q is %q inside with the tag %q, want %q with %q", key, tagged[i],
				layer.HashedTag(tagged[i]), want, wantTag)
		}
	}
}

// TestHashedKeysAreDistinct: different keys have different hashes, and so has the same key with
// another secret and as a tag.
func TestHashedKeysAreDistinct(t *testing.T) {
	const n = 2000
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("192.0.2.%d", i), fmt.Sprintf("192.0.2.%d/%d", i, i))
	}
	seen := make(map[string]bool)
	for _, c := range []byte{'a', 'b'} {
		for _, hash := range hashesOf(t, secret(c), upToSlash, keys...) {
			seen[hash] = true
			if _, own, ok := strings.Cut(hash, "/"); ok {
				seen[own] = true
			}
		}
	}
	// With each secret, for each number: the tag, which is a key too, the other key, and both.
	if want := 2 * 3 * n; len(seen) != want {
		t.Errorf("%d different hashes, want %d", len(seen), want)
	}
}

// TestHashedKeysTakeAll: each key of a TakeAll has the hash that it has in a Take, also if several
// limits have the same one, and the caller's demands stay as they are.
func TestHashedKeysTakeAll(t *testing.T) {
	keys := []string{"t/a", "t/a", "t/b", "t/a", "t"}
	want := hashesOf(t, secret('s'), upToSlash, keys...)
	r := &recorder{Store: broken{}}
	ds, out := []driver.Demand{}, make([]driver.Result, len(keys))
	for _, key := range keys {
		ds = append(ds, unit(key))
	}
	_ = hashed(t, r).TakeAll(t.Context(), ds, out) // the error of broken
	for i, key := range keys {
		if r.keys[i] != want[i] || ds[i] != unit(key) {
			t.Errorf("demand %d is %+v, and for %q inside, want %q", i, ds[i], r.keys[i], want[i])
		}
	}
}

// TestHashedKeysConcurrently: calls at the same time do not mix up keys: each key of each limit
// admits exactly Max.
func TestHashedKeysConcurrently(t *testing.T) {
	memory, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	const keys, callers = 500, 10 // more than Max
	store := hashed(t, memory)
	var admitted [keys]atomic.Int64
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for i := range admitted {
				alone, both := fmt.Sprint("key/", i), fmt.Sprint("both/", i)
				one, err := store.Take(t.Context(), unit(alone))
				out := make([]driver.Result, 2)
				errAll := store.TakeAll(t.Context(),
					[]driver.Demand{unit(both), unit(both + "'")}, out)
				if err != nil || errAll != nil {
					t.Errorf("%v, %v", err, errAll)
				}
				admitted[i].Add(one.Units + out[0].Units + out[1].Units)
			}
		})
	}
	calling.Wait()
	for i := range admitted {
		if n, want := admitted[i].Load(), 3*perMinute.Limit().Max; n != want {
			t.Errorf("key %d: %d units, want %d", i, n, want)
		}
	}
}

// TestHashedKeysEmpty: an empty key is the error of the store inside, not a hash.
func TestHashedKeysEmpty(t *testing.T) {
	r := &recorder{Store: newOutage(t)}
	store := hashed(t, r)
	_, err := store.Take(t.Context(), unit(""))
	errAll := store.TakeAll(t.Context(), []driver.Demand{unit("a"), unit("")},
		make([]driver.Result, 2))
	if !errors.Is(err, driver.ErrInvalid) || !errors.Is(errAll, driver.ErrInvalid) {
		t.Errorf("%v, %v", err, errAll)
	}
	if r.keys[0] != "" || r.keys[2] != "" {
		t.Errorf("inside they are %q", r.keys)
	}
}

// BenchmarkHashedKeys measures what the hashes add to a call.
func BenchmarkHashedKeys(b *testing.B) {
	s, err := layer.NewHashedKeys(broken{}, secret('s'))
	if err != nil {
		b.Fatal(err)
	}
	for name, store := range map[string]driver.Store{"key": s, "tag": s.WithTag(upToSlash)} {
		b.Run(name, func(b *testing.B) {
			d := unit("tenant-42/user-4711")
			b.ReportAllocs()
			for b.Loop() {
				_, _ = store.Take(b.Context(), d)
			}
		})
	}
}
