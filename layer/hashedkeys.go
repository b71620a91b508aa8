package layer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"

	"github.com/truewindow/ratelimit/driver"
)

// MinSecret is the length in bytes of the shortest secret of [NewHashedKeys].
const MinSecret = 32

// HashedKeys is a store that passes keyed hashes of keys to the store inside, so that this and all
// layers inside, their dumps and their errors hold no key. Create one with [NewHashedKeys]. It is
// safe for concurrent use.
//
// A key becomes the first 128 bits of its HMAC-SHA256 in base64url, 22 bytes, or with a tag
// ([HashedKeys.WithTag]) the same of the tag, "/" and that of the key, 45 bytes. Among a billion
// keys two have the same hash, and so share a history, with a probability of about 10^-21; without
// the secret nobody can look for such keys. Whoever has the secret can find out which key a hash is
// of, by trying keys. The number of keys, when each is used, and which have one tag can be seen
// without it.
//
// All processes that share limits need the same secret and tags; with another secret all counts
// begin at zero. A token of [github.com/truewindow/ratelimit.Reservation] has the keys themselves.
type HashedKeys struct {
	store   driver.Store
	tag     func(key string) string // nil: each key is its own tag
	hashers *sync.Pool              // of *keyHasher
}

var _ driver.Store = (*HashedKeys)(nil)

// NewHashedKeys returns a store around store. The secret is at least [MinSecret] random bytes, of
// which it keeps a copy. An error wraps [driver.ErrInvalid].
func NewHashedKeys(store driver.Store, secret []byte) (*HashedKeys, error) {
	if store == nil {
		return nil, fmt.Errorf("%w options: no store", driver.ErrInvalid)
	}
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("%w options: a secret of %d bytes is shorter than %d",
			driver.ErrInvalid, len(secret), MinSecret)
	}
	secret = slices.Clone(secret)
	return &HashedKeys{store: store, hashers: &sync.Pool{New: func() any {
		return &keyHasher{mac: hmac.New(sha256.New, secret)}
	}}}, nil
}

// WithTag returns a store that hashes the tag of a key apart, so that a Cluster stores keys with
// the same tag on one server and decides them together. The function is what the option Tag of a
// store on servers would be, and Tag is [HashedTag] instead, or "tag=/" in a URL. If tag is nil or
// returns an empty string, the tag is the key. It must be safe for concurrent use.
//
// With only one of the two a TakeAll of several keys on a Cluster is an error that wraps
// [errors.ErrUnsupported].
func (s *HashedKeys) WithTag(tag func(key string) string) *HashedKeys {
	return &HashedKeys{store: s.store, tag: tag, hashers: s.hashers}
}

// HashedTag returns the tag of a key of the store inside a HashedKeys: what is before the first
// "/", or an empty string if there is none.
func HashedTag(key string) string {
	if tag, _, ok := strings.Cut(key, "/"); ok {
		return tag
	}
	return ""
}

// Take decides one demand. Result and error are those of the store inside.
func (s *HashedKeys) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if d.Key != "" { // the store would not see that it is empty
		h := s.hashers.Get().(*keyHasher)
		d.Key = h.keyOf(d.Key, s.tag)
		s.hashers.Put(h)
	}
	return s.store.Take(ctx, d)
}

// TakeAll decides several demands as one. Results and error are those of the store inside.
func (s *HashedKeys) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	h := s.hashers.Get().(*keyHasher)
	defer s.release(h)
	h.demands = append(h.demands[:0], ds...)
	for i := range h.demands {
		switch d := &h.demands[i]; {
		case d.Key == "":
		case i > 0 && d.Key == ds[i-1].Key: // several limits of one key
			d.Key = h.demands[i-1].Key
		default:
			d.Key = h.keyOf(d.Key, s.tag)
		}
	}
	return s.store.TakeAll(ctx, h.demands, out)
}

func (s *HashedKeys) release(h *keyHasher) {
	if cap(h.demands) > maxScratch {
		return
	}
	clear(h.demands)
	s.hashers.Put(h)
}

const (
	// hashedBytes is the part of a hash that is kept.
	hashedBytes = sha256.Size / 2
	// hashedLen is its length in base64.
	hashedLen = (hashedBytes*8 + 5) / 6
)

// The first byte that is hashed. Keys without a tag of their own are hashed as tags, since they
// belong to the slot of the keys that have them as their tag.
const (
	hashOfTag = 't'
	hashOfKey = 'k'
)

// A keyHasher hashes keys, one after the other.
type keyHasher struct {
	mac     hash.Hash
	demands []driver.Demand // of a TakeAll
	block   [256]byte       // what is hashed next
	sum     [sha256.Size]byte
	text    [2*hashedLen + 1]byte
}

func (h *keyHasher) keyOf(key string, tagOf func(string) string) string {
	tag := key
	if tagOf != nil {
		if t := tagOf(key); t != "" {
			tag = t
		}
	}
	text := h.append(h.text[:0], hashOfTag, tag)
	if tag != key {
		text = h.append(append(text, '/'), hashOfKey, key)
	}
	return string(text)
}

// append appends the hash of s.
func (h *keyHasher) append(text []byte, kind byte, s string) []byte {
	h.mac.Reset()
	h.block[0] = kind
	for n := 1; ; n = 0 {
		copied := copy(h.block[n:], s)
		_, _ = h.mac.Write(h.block[:n+copied]) // it never fails
		if s = s[copied:]; s == "" {
			break
		}
	}
	sum := h.mac.Sum(h.sum[:0])
	return base64.RawURLEncoding.AppendEncode(text, sum[:hashedBytes])
}
