package driver_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

func TestCheckTake(t *testing.T) {
	const secret = "key-of-a-user"
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	ten := algorithm.SlidingLog(driver.PerSecond("second", 10))
	most := algorithm.SlidingLog(driver.PerSecond("second", driver.MaxUnits))
	tests := []struct {
		name string
		ctx  context.Context
		d    driver.Demand
		want []error // none: valid
	}{
		{"take", t.Context(), driver.Demand{Key: "k", Algorithm: ten, N: 1}, nil},
		{"take all", t.Context(), driver.Demand{Key: "k", Algorithm: ten, N: 10}, nil},
		{"take MaxUnits", t.Context(),
			driver.Demand{Key: "k", Algorithm: most, N: driver.MaxUnits}, nil},
		{"look all", t.Context(),
			driver.Demand{Key: "k", Algorithm: ten, Op: driver.OpPeek, N: 10}, nil},
		{"force beyond Max", t.Context(),
			driver.Demand{Key: "k", Algorithm: ten, Op: driver.OpForce, N: 11}, nil},
		{"force at any time", t.Context(),
			driver.Demand{Key: "k", Algorithm: ten, Op: driver.OpForce, N: 1, At: -5}, nil},
		{"reset without N", t.Context(),
			driver.Demand{Key: "k", Algorithm: ten, Op: driver.OpReset}, nil},
		{"reset ignores N", t.Context(),
			driver.Demand{Key: "k", Algorithm: ten, Op: driver.OpReset, N: -1}, nil},
		{"key of any bytes", t.Context(),
			driver.Demand{Key: "\x00{\xff}", Algorithm: ten, N: 1}, nil},

		{"cancelled", ended, driver.Demand{Key: secret, Algorithm: ten, N: 1},
			[]error{driver.ErrUnavailable, context.Canceled}},
		{"too late", late, driver.Demand{Key: secret, Algorithm: ten, N: 1},
			[]error{driver.ErrUnavailable, context.DeadlineExceeded}},
		{"empty key", t.Context(), driver.Demand{Algorithm: ten, N: 1},
			[]error{driver.ErrInvalid}},
		{"no algorithm", t.Context(), driver.Demand{Key: secret, N: 1},
			[]error{driver.ErrInvalid}},
		{"unknown op", t.Context(), driver.Demand{Key: secret, Algorithm: ten,
			Op: driver.OpSettle + 1, N: 1}, []error{driver.ErrInvalid}},
		{"last op", t.Context(), driver.Demand{Key: secret, Algorithm: ten, Op: 255, N: 1},
			[]error{driver.ErrInvalid}},
		{"take 0", t.Context(), driver.Demand{Key: secret, Algorithm: ten},
			[]error{driver.ErrInvalid}},
		{"take -1", t.Context(), driver.Demand{Key: secret, Algorithm: ten, N: -1},
			[]error{driver.ErrInvalid}},
		{"look 0", t.Context(), driver.Demand{Key: secret, Algorithm: ten, Op: driver.OpPeek},
			[]error{driver.ErrInvalid}},
		{"force 0", t.Context(), driver.Demand{Key: secret, Algorithm: ten,
			Op: driver.OpForce}, []error{driver.ErrInvalid}},
		{"force beyond MaxUnits", t.Context(),
			driver.Demand{Key: secret, Algorithm: ten, Op: driver.OpForce,
				N: driver.MaxUnits + 1},
			[]error{driver.ErrInvalid}},
		{"take beyond MaxUnits", t.Context(), driver.Demand{Key: secret, Algorithm: ten,
			N: driver.MaxUnits + 1}, []error{driver.ErrInvalid}},
		{"take beyond Max", t.Context(), driver.Demand{Key: secret, Algorithm: ten, N: 11},
			[]error{driver.ErrExceedsLimit}},
		{"look beyond Max", t.Context(), driver.Demand{Key: secret, Algorithm: ten,
			Op: driver.OpPeek, N: 11}, []error{driver.ErrExceedsLimit}},
	}
	for _, op := range []driver.Op{driver.OpTake, driver.OpPeek, driver.OpForce,
		driver.OpReset} {
		for _, l := range []driver.Limit{
			{}, {Max: 0, Window: time.Second}, {Max: driver.MaxUnits + 1, Window: time.Second},
			{Max: 1, Window: time.Microsecond}, {Max: 1, Window: driver.MaxWindow + time.Second},
		} {
			tests = append(tests, struct {
				name string
				ctx  context.Context
				d    driver.Demand
				want []error
			}{
				fmt.Sprintf("%v under %v", op, l), t.Context(),
				driver.Demand{Key: secret, Algorithm: algorithm.SlidingLog(l), Op: op, N: 1},
				[]error{driver.ErrInvalid},
			})
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var res [1]driver.Result
			for name, err := range map[string]error{
				"CheckTake":    driver.CheckTake(tt.ctx, tt.d),
				"CheckTakeAll": driver.CheckTakeAll(tt.ctx, []driver.Demand{tt.d}, res[:]),
			} {
				if tt.want == nil && err != nil {
					t.Errorf("%s: %v", name, err)
				}
				wantErr(t, err, tt.want...)
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the key is in %q", name, err)
				}
			}
		})
	}
}

// otherLog is naiveLog with another encoding, and so with another state.
type otherLog struct{ algorithm.Log }

func (otherLog) Name() string { return "other" }

func TestCheckTakeAll(t *testing.T) {
	log := algorithm.SlidingLog(driver.PerSecond("second", 10))
	take := func(key string, a driver.Algorithm) driver.Demand {
		return driver.Demand{Key: key, Algorithm: a, N: 1}
	}
	many := func(n int, more ...driver.Demand) []driver.Demand {
		ds := make([]driver.Demand, n)
		for i := range ds {
			ds[i] = take(strconv.Itoa(i), log)
		}
		return append(ds, more...)
	}
	tests := []struct {
		name string
		ds   []driver.Demand
		want error
	}{
		{"none", nil, driver.ErrInvalid},
		{"two keys", []driver.Demand{take("a", log), take("b", log)}, nil},
		{"two limits", []driver.Demand{take("a", log),
			take("a", algorithm.SlidingLog(driver.PerDay("day", 10)))}, nil},
		{"two names", []driver.Demand{take("a", log),
			take("a", algorithm.SlidingLog(driver.PerSecond("x", 10)))}, nil},
		{"two algorithms", []driver.Demand{take("a", log), take("a", otherLog{log})}, nil},
		{"same", []driver.Demand{take("a", log), take("a", log)}, driver.ErrInvalid},
		{"same, another Max", []driver.Demand{take("a", log),
			take("a", algorithm.SlidingLog(driver.PerSecond("second", 99)))}, driver.ErrInvalid},
		{"same, another Window", []driver.Demand{take("a", log),
			take("a", algorithm.SlidingLog(driver.PerDay("second", 10)))}, driver.ErrInvalid},
		{"same, another Op", []driver.Demand{take("a", log),
			{Key: "a", Algorithm: log, Op: driver.OpReset}}, driver.ErrInvalid},
		{"second invalid", []driver.Demand{take("a", log), take("", log)},
			driver.ErrInvalid},
		{"invalid before duplicate",
			[]driver.Demand{take("a", log), take("a", log), take("b", nil)},
			driver.ErrInvalid},
		{"second exceeds", []driver.Demand{take("a", log), {Key: "b", Algorithm: log, N: 11}},
			driver.ErrExceedsLimit},
		{"16", many(16), nil},
		{"16 with duplicate", many(15, take("0", log)), driver.ErrInvalid},
		{"17", many(17), nil},
		{"17 with duplicate", many(16, take("15", log)), driver.ErrInvalid},
		{"256", many(driver.MaxDemands), nil},
		{"257", many(driver.MaxDemands + 1), driver.ErrInvalid},
		{"100,000", many(100_000), driver.ErrInvalid},
		{"256 with another limit",
			many(255, take("7", algorithm.SlidingLog(driver.PerDay("day", 10)))),
			nil},
		{"256 with another algorithm", many(255, take("7", otherLog{log})), nil},
		{"256 with duplicate",
			many(255, take("7", algorithm.SlidingLog(driver.PerSecond("second", 99)))),
			driver.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := driver.CheckTakeAll(t.Context(), tt.ds, make([]driver.Result, len(tt.ds)))
			if tt.want == nil && err != nil {
				t.Errorf("CheckTakeAll: %v", err)
			}
			if tt.want != nil {
				wantErr(t, err, tt.want)
			}
		})
	}
	for _, room := range []int{0, 1, 3} {
		err := driver.CheckTakeAll(t.Context(), many(2), make([]driver.Result, room))
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("2 demands with room for %d results: %v", room, err)
		}
	}
}

func TestDemandPeek(t *testing.T) {
	const now = 1_800_000_000_000_000
	log := algorithm.SlidingLog(driver.Limit{Max: 3, Window: time.Second})
	full, keep, _ := driver.Demand{Algorithm: log, Op: driver.OpForce, N: 3}.Step(nil, now)
	if keep <= 0 {
		t.Fatalf("keep of a Force is %v", keep)
	}
	const later = now + 400_000
	refused := driver.Result{Limit: log.Limit(), RetryAfter: 600 * time.Millisecond,
		ResetAfter: 600 * time.Millisecond}
	always := driver.Result{Allowed: true, Limit: log.Limit(),
		ResetAfter: 600 * time.Millisecond}
	tests := []struct {
		d    driver.Demand
		want driver.Result
	}{
		{driver.Demand{Op: driver.OpTake, N: 1}, refused},
		{driver.Demand{Op: driver.OpPeek, N: 2}, refused},
		{driver.Demand{Op: driver.OpForce, N: 99, At: now}, always},
		{driver.Demand{Op: driver.OpReset}, always},
	}
	for _, tt := range tests {
		tt.d.Key, tt.d.Algorithm = "k", log
		state := string(full)
		next, keep, res := tt.d.Peek(full, later)
		if keep != 0 || string(next) != state || string(full) != state {
			t.Errorf("%v: a peek changes the state (keep %v)", tt.d.Op, keep)
		}
		if res != tt.want {
			t.Errorf("%v: got %+v, want %+v", tt.d.Op, res, tt.want)
		}
		if _, _, empty := tt.d.Peek(nil, later); !empty.Allowed || empty.Remaining != 3 {
			t.Errorf("%v: a key without history answers %+v", tt.d.Op, empty)
		}
		switch _, keep, res := tt.d.Peek([]byte("x"), later); {
		case tt.d.Op == driver.OpReset && (keep != 0 || !res.Allowed || res.Remaining != 3):
			t.Errorf("%v of a corrupt state: keep %v, %+v", tt.d.Op, keep, res)
		case tt.d.Op != driver.OpReset && keep >= 0:
			t.Errorf("%v: keep of a corrupt state is %v", tt.d.Op, keep)
		}
	}
	// Peek uses N: two of three units are spent.
	two, _, _ := driver.Demand{Algorithm: log, N: 2}.Step(nil, now)
	for n, want := range map[int64]bool{1: true, 2: false} {
		d := driver.Demand{Key: "k", Algorithm: log, N: n}
		if _, _, res := d.Peek(two, later); res.Allowed != want || res.Remaining != 1 {
			t.Errorf("Peek of a Take of %d: %+v", n, res)
		}
	}
}

// spyLog keeps the demand of its last step.
type spyLog struct {
	algorithm.Log
	asked *driver.Demand
}

func (a spyLog) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	*a.asked = d
	return a.Log.Step(state, now, d)
}

func TestDemandPeekAsksForOneUnit(t *testing.T) {
	var asked driver.Demand
	log := spyLog{algorithm.SlidingLog(driver.PerSecond("second", 3)), &asked}
	for op, want := range map[driver.Op]int64{
		driver.OpTake: 2, driver.OpPeek: 2, driver.OpForce: 1, driver.OpReset: 1,
	} {
		d := driver.Demand{Key: "k", Algorithm: log, Op: op, N: 2}
		d.Peek(nil, 1_800_000_000_000_000)
		if asked.Op != driver.OpPeek || asked.N != want {
			t.Errorf("Peek of a %v asks %v for %d units, want a peek for %d",
				op, asked.Op, asked.N, want)
		}
		d.Step(nil, 1_800_000_000_000_000)
		if asked != d {
			t.Errorf("Step of a %v asks %+v, want the demand as it is", op, asked)
		}
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		got  fmt.Stringer
		want string
	}{
		{driver.OpTake, "take"},
		{driver.OpPeek, "peek"},
		{driver.OpForce, "force"},
		{driver.OpReset, "reset"},
		{driver.OpHold, "hold"},
		{driver.OpSettle, "settle"},
		{driver.OpSettle + 1, "op(6)"},
		{driver.SourceStore, "store"},
		{driver.SourceCache, "cache"},
		{driver.SourceLocal, "local"},
		{driver.SourceOpen, "open"},
		{driver.Source(200), "source(200)"},
	} {
		if got := tt.got.String(); got != tt.want {
			t.Errorf("String = %q, want %q", got, tt.want)
		}
	}
}

// namedAlgorithm is an algorithm that has only names.
type namedAlgorithm struct{ limit, algorithm string }

func (n namedAlgorithm) Name() string          { return n.algorithm }
func (n namedAlgorithm) Limit() driver.Limit   { return driver.PerMinute(n.limit, 1) }
func (n namedAlgorithm) Validate() error       { return nil }
func (n namedAlgorithm) Script() driver.Script { return driver.Script{} }
func (n namedAlgorithm) Step(
	[]byte, int64, driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	return nil, 0, driver.Result{}
}

func storedKey(key, limit, algorithm string) string {
	return driver.Demand{Key: key, Algorithm: namedAlgorithm{limit, algorithm}, N: 1}.StoredKey()
}

func TestStoredKey(t *testing.T) {
	for _, tt := range []struct{ what, key, want string }{
		{"plain", "user:42", "user:42:1m0s:log3"},
		{"percent and number sign", "a%b#", "a%25b%23:1m0s:log3"},
		{"space, control bytes and others", "a b\x00\n\x7f\xff", "a%20b%00%0A%7F%FF:1m0s:log3"},
		{"UTF-8", "ü", "%C3%BC:1m0s:log3"},
		{"longest", strings.Repeat("x", 120), strings.Repeat("x", 120) + ":1m0s:log3"},
		{"longer", strings.Repeat("x", 121), "#" + hashOf(strings.Repeat("x", 121)) + ":1m0s:log3"},
		{"longer as written", strings.Repeat("\x00", 41),
			"#" + hashOf(strings.Repeat("\x00", 41)) + ":1m0s:log3"},
	} {
		if got := storedKey(tt.key, "1m0s", "log3"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	if got, want := storedKey("k", "a:b", strings.Repeat("c", 65)),
		"k:a%3Ab:#"+hashOf(strings.Repeat("c", 65)); got != want {
		t.Errorf("names: %q, want %q", got, want)
	}
	if n := len(storedKey(strings.Repeat("x", 120), strings.Repeat("l", 64),
		strings.Repeat("a", 64))); n != 250 {
		t.Errorf("the longest has %d bytes", n)
	}
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func TestStoredKeyAllocates(t *testing.T) {
	d := driver.Demand{Key: strings.Repeat("x", 120),
		Algorithm: namedAlgorithm{"1m0s", "log3"}, N: 1}
	if n := testing.AllocsPerRun(100, func() { _ = d.StoredKey() }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzStoredKey holds that a stored key is bounded and printable, and that its parts, hashes aside,
// can be decoded to the key and the names: no two states share one.
func FuzzStoredKey(f *testing.F) {
	f.Add("user:42", "1m0s", "log3")
	f.Add("a:b", "c", "d:e")
	f.Add("#", "%23", "")
	f.Add("\x00\xff ü%", "#a", ":")
	f.Add(strings.Repeat("x", 121), strings.Repeat("%", 22), strings.Repeat("y", 65))
	f.Fuzz(func(t *testing.T, key, limit, algorithm string) {
		stored := storedKey(key, limit, algorithm)
		if len(stored) > 250 ||
			strings.ContainsFunc(stored, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("%q: %d bytes, or not printable", stored, len(stored))
		}
		rest := stored
		for i, want := range []string{algorithm, limit} {
			at := strings.LastIndexByte(rest, ':')
			if at < 0 || !isStored(rest[at+1:], want, 64) {
				t.Fatalf("%q: name %d is not %q", stored, i, want)
			}
			rest = rest[:at]
		}
		if !isStored(rest, key, 120) {
			t.Fatalf("%q: the key is not %q", stored, key)
		}
	})
}

// isStored reports whether part is s, or the hash of s if s is too long as written.
func isStored(part, s string, most int) bool {
	if hash, ok := strings.CutPrefix(part, "#"); ok {
		return hash == hashOf(s) && len(s)*3 > most
	}
	got, err := url.PathUnescape(part)
	return err == nil && got == s && len(part) <= most
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("error is %v, want one that wraps %v", err, w)
		}
	}
}
