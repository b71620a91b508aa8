// Package topkeys lists the keys that are refused most now, in bounded memory. It is an observer of
// limiters.
//
//	keys, err := topkeys.New(nil)
//	…
//	limiter = limiter.WithObserver(keys.Observe)
//	…
//	for _, limit := range keys.Top() { … }
//
// For each limit it keeps the keys that are refused most, and a count of their refusals. The counts
// decay: with each half-life, a refusal counts half as much. So the keys at the top are those that
// are refused now, and a key that is no longer refused leaves the list.
//
// The algorithm is Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation of
// Frequent and Top-k Elements in Data Streams", ICDT 2005). Instead of counts that shrink, it has
// weights that grow with time (Cormode, Shkapenyuk, Srivastava and Xu, "Forward Decay: A Practical
// Time Decay Model for Streaming Systems", ICDE 2009). [Key] and [Limit] state the bounds that it
// guarantees.
//
// Keys are user data. The list has keyed hashes of the keys, unless [Options] ask for the keys
// themselves. Do not use either as labels of a metric, because the list changes all the time.
package topkeys

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// The defaults and the bounds of [Options].
const (
	DefaultSize     = 100 // keys
	DefaultHalfLife = 10 * time.Minute

	MaxSize   = 100_000 // keys
	MinSecret = 16      // bytes
)

// maxLimits is how many limits have a list of their own. Further ones share the list of otherName.
const (
	maxLimits = 1000
	otherName = "_other"
)

// nameBytes is the length of a name before it is written in hexadecimal: half of the hash, the
// least that RFC 2104 recommends.
const nameBytes = sha256.Size / 2

// Options of a sketch. The zero value is ready for use.
type Options struct {
	// Size is the number of keys that are kept for each limit, at most MaxSize. 0 means
	// DefaultSize.
	Size int
	// HalfLife is the time after which a refusal counts half. 0 means DefaultHalfLife.
	HalfLife time.Duration
	// Secret is the key of the hashes, of at least MinSecret bytes. Sketches with the same secret
	// have the same hashes. Nil means a random secret, which no other sketch has.
	Secret []byte
	// Plain lists the keys themselves. It cannot be combined with a Secret.
	Plain bool
	// Now is the clock, which must be safe for concurrent use. Nil means time.Now. While it stands
	// still or steps back, nothing decays.
	Now func() time.Time
}

// A Sketch counts the refusals of keys. It is safe for concurrent use. Create one with [New].
//
// It holds at most Size keys for each of at most 1,000 limits. All further limits share one list
// with the name "_other". For a key longer than 128 bytes it holds the SHA-512 hash.
type Sketch struct {
	options Options
	start   time.Time

	mu     sync.RWMutex
	limits map[string]*summary
}

// A Limit is a limit and the keys that it refuses most.
type Limit struct {
	Name string
	// Refusals is the count of all refusals of the limit, decayed like those of the keys. Every key
	// with a count above Refusals divided by [Options.Size] is in the list.
	Refusals float64
	// Keys are those with the highest counts, the highest first. Counts below 0.001 are left out.
	Keys []Key
}

// A Key is a key and how often it was refused. The exact count of its refusals, each decayed by its
// age, is between Count - Error and Count. Error is at most [Limit.Refusals] divided by
// [Options.Size], and 0 as long as the limit has refused no more than Size different keys. The
// bounds are exact except for the rounding of float64.
type Key struct {
	// Name is the first 16 bytes of the HMAC-SHA256 of the key, in hexadecimal, or the key itself
	// with [Options.Plain].
	Name         string
	Count, Error float64
}

// New returns an empty sketch. Nil options are the zero Options. An error wraps
// [ratelimit.ErrInvalid].
func New(opts *Options) (*Sketch, error) {
	s := &Sketch{limits: make(map[string]*summary)}
	if opts != nil {
		s.options = *opts
	}
	o := &s.options
	switch {
	case o.Size < 0 || o.Size > MaxSize:
		return nil, invalid("Size %d is not between 0 and %d", o.Size, MaxSize)
	case o.HalfLife < 0:
		return nil, invalid("HalfLife %v is negative", o.HalfLife)
	case o.Secret != nil && len(o.Secret) < MinSecret:
		return nil, invalid("a Secret of %d bytes is shorter than %d", len(o.Secret), MinSecret)
	case o.Secret != nil && o.Plain:
		return nil, invalid("Secret and Plain cannot be combined")
	}
	if o.Size == 0 {
		o.Size = DefaultSize
	}
	if o.HalfLife == 0 {
		o.HalfLife = DefaultHalfLife
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Secret = slices.Clone(o.Secret)
	if o.Secret == nil {
		o.Secret = make([]byte, sha256.Size)
		_, _ = rand.Read(o.Secret) // it never fails
	}
	s.start = o.Now()
	return s, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ratelimit.ErrInvalid}, args...)...)
}

// Observe counts one refusal of the key for each limit that refuses the call, whatever the units of
// the call. Pass it to [ratelimit.Limiter.WithObserver]. Refused peeks count too: a claim of no
// units is one, such as a claim on a block. A wait that was given up counts once, if it was
// refused. Errors do not count, and neither do limits that admit a call that another limit refuses.
func (s *Sketch) Observe(_ context.Context, o ratelimit.Observation) {
	if o.Op != driver.OpTake && o.Op != driver.OpPeek && o.Op != driver.OpHold {
		return
	}
	for i, res := range o.Results {
		if !res.Allowed && res != (ratelimit.Result{}) {
			s.summary(o.Limits[i].Name).refuse(o.Key, s.halfLives())
		}
	}
}

// halfLives returns how many half-lives have passed since the start.
func (s *Sketch) halfLives() float64 {
	return float64(s.options.Now().Sub(s.start)) / float64(s.options.HalfLife)
}

// summary returns the summary of a limit.
func (s *Sketch) summary(limit string) *summary {
	s.mu.RLock()
	found := s.limits[limit]
	s.mu.RUnlock()
	if found != nil {
		return found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.limits) >= maxLimits && s.limits[limit] == nil {
		limit = otherName
	}
	if s.limits[limit] == nil {
		s.limits[strings.Clone(limit)] = newSummary(s.options.Size)
	}
	return s.limits[limit]
}

// Top returns a list for each limit that has refused a key, sorted by the names of the limits. The
// lists are not of the same instant: calls may be counted between them.
func (s *Sketch) Top() []Limit {
	s.mu.RLock()
	limits := maps.Clone(s.limits)
	s.mu.RUnlock()
	var all []Limit
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		refusals, keys := limits[name].top(s.halfLives())
		for i := range keys {
			keys[i].Name = s.name(keys[i].Name)
		}
		all = append(all, Limit{Name: name, Refusals: refusals, Keys: keys})
	}
	return all
}

// Name returns the name that Top has for key. Compare the two to find a key in the list.
func (s *Sketch) Name(key string) string { return s.name(longkey.Shorten(key)) }

// name is Name for a key that is already shortened.
func (s *Sketch) name(key string) string {
	if s.options.Plain {
		return key
	}
	hash := hmac.New(sha256.New, s.options.Secret)
	_, _ = hash.Write([]byte(key)) // it never fails
	return hex.EncodeToString(hash.Sum(nil)[:nameBytes])
}

// Key returns the key that Top lists for a limit by a name. It does not know keys of more than 128
// bytes.
func (s *Sketch) Key(limit, name string) (key string, ok bool) {
	s.mu.RLock()
	found := s.limits[limit]
	s.mu.RUnlock()
	if found == nil {
		return "", false
	}
	_, keys := found.top(s.halfLives())
	i := slices.IndexFunc(keys, func(k Key) bool {
		return len(k.Name) <= longkey.Max && s.name(k.Name) == name
	})
	if i < 0 {
		return "", false
	}
	return keys[i].Name, true
}
