package ratelimit_test

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

	"github.com/truewindow/ratelimit"
)

func TestCheckTake(t *testing.T) {
	const secret = "key-of-a-user"
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	ten := naiveLog{ratelimit.PerSecond("second", 10)}
	most := naiveLog{ratelimit.PerSecond("second", ratelimit.MaxUnits)}
	tests := []struct {
		name string
		ctx  context.Context
		d    ratelimit.Demand
		want []error // none: valid
	}{
		{"take", t.Context(), ratelimit.Demand{Key: "k", Algorithm: ten, N: 1}, nil},
		{"take all", t.Context(), ratelimit.Demand{Key: "k", Algorithm: ten, N: 10}, nil},
		{"take MaxUnits", t.Context(),
			ratelimit.Demand{Key: "k", Algorithm: most, N: ratelimit.MaxUnits}, nil},
		{"look all", t.Context(),
			ratelimit.Demand{Key: "k", Algorithm: ten, Op: ratelimit.OpPeek, N: 10}, nil},
		{"force beyond Max", t.Context(),
			ratelimit.Demand{Key: "k", Algorithm: ten, Op: ratelimit.OpForce, N: 11}, nil},
		{"give back beyond Max", t.Context(),
			ratelimit.Demand{Key: "k", Algorithm: ten, Op: ratelimit.OpGiveBack, N: 11, At: -5},
			nil},
		{"reset without N", t.Context(),
			ratelimit.Demand{Key: "k", Algorithm: ten, Op: ratelimit.OpReset}, nil},
		{"reset ignores N", t.Context(),
			ratelimit.Demand{Key: "k", Algorithm: ten, Op: ratelimit.OpReset, N: -1}, nil},
		{"key of any bytes", t.Context(),
			ratelimit.Demand{Key: "\x00{\xff}", Algorithm: ten, N: 1}, nil},

		{"cancelled", ended, ratelimit.Demand{Key: secret, Algorithm: ten, N: 1},
			[]error{ratelimit.ErrUnavailable, context.Canceled}},
		{"too late", late, ratelimit.Demand{Key: secret, Algorithm: ten, N: 1},
			[]error{ratelimit.ErrUnavailable, context.DeadlineExceeded}},
		{"empty key", t.Context(), ratelimit.Demand{Algorithm: ten, N: 1},
			[]error{ratelimit.ErrInvalidDemand}},
		{"no algorithm", t.Context(), ratelimit.Demand{Key: secret, N: 1},
			[]error{ratelimit.ErrInvalidDemand}},
		{"unknown op", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten,
			Op: ratelimit.OpReset + 1, N: 1}, []error{ratelimit.ErrInvalidDemand}},
		{"last op", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten, Op: 255, N: 1},
			[]error{ratelimit.ErrInvalidDemand}},
		{"take 0", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten},
			[]error{ratelimit.ErrInvalidDemand}},
		{"take -1", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten, N: -1},
			[]error{ratelimit.ErrInvalidDemand}},
		{"look 0", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten, Op: ratelimit.OpPeek},
			[]error{ratelimit.ErrInvalidDemand}},
		{"force 0", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten,
			Op: ratelimit.OpForce}, []error{ratelimit.ErrInvalidDemand}},
		{"give back 0", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten,
			Op: ratelimit.OpGiveBack}, []error{ratelimit.ErrInvalidDemand}},
		{"force beyond MaxUnits", t.Context(),
			ratelimit.Demand{Key: secret, Algorithm: ten, Op: ratelimit.OpForce,
				N: ratelimit.MaxUnits + 1},
			[]error{ratelimit.ErrInvalidDemand}},
		{"take beyond MaxUnits", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten,
			N: ratelimit.MaxUnits + 1}, []error{ratelimit.ErrInvalidDemand}},
		{"take beyond Max", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten, N: 11},
			[]error{ratelimit.ErrExceedsLimit}},
		{"look beyond Max", t.Context(), ratelimit.Demand{Key: secret, Algorithm: ten,
			Op: ratelimit.OpPeek, N: 11}, []error{ratelimit.ErrExceedsLimit}},
	}
	for _, op := range []ratelimit.Op{ratelimit.OpTake, ratelimit.OpPeek, ratelimit.OpForce,
		ratelimit.OpGiveBack, ratelimit.OpReset} {
		for _, l := range []ratelimit.Limit{
			{}, {Max: 0, Window: time.Second}, {Max: ratelimit.MaxUnits + 1, Window: time.Second},
			{Max: 1, Window: time.Microsecond}, {Max: 1, Window: ratelimit.MaxWindow + time.Second},
		} {
			tests = append(tests, struct {
				name string
				ctx  context.Context
				d    ratelimit.Demand
				want []error
			}{
				fmt.Sprintf("%v under %v", op, l), t.Context(),
				ratelimit.Demand{Key: secret, Algorithm: naiveLog{l}, Op: op, N: 1},
				[]error{ratelimit.ErrInvalidLimit},
			})
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var res [1]ratelimit.Result
			for name, err := range map[string]error{
				"CheckTake":    ratelimit.CheckTake(tt.ctx, tt.d),
				"CheckTakeAll": ratelimit.CheckTakeAll(tt.ctx, []ratelimit.Demand{tt.d}, res[:]),
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
type otherLog struct{ naiveLog }

func (otherLog) Name() string { return "other" }

func TestCheckTakeAll(t *testing.T) {
	log := naiveLog{ratelimit.PerSecond("second", 10)}
	take := func(key string, a ratelimit.Algorithm) ratelimit.Demand {
		return ratelimit.Demand{Key: key, Algorithm: a, N: 1}
	}
	many := func(n int, more ...ratelimit.Demand) []ratelimit.Demand {
		ds := make([]ratelimit.Demand, n)
		for i := range ds {
			ds[i] = take(strconv.Itoa(i), log)
		}
		return append(ds, more...)
	}
	tests := []struct {
		name string
		ds   []ratelimit.Demand
		want error
	}{
		{"none", nil, ratelimit.ErrInvalidDemand},
		{"two keys", []ratelimit.Demand{take("a", log), take("b", log)}, nil},
		{"two limits", []ratelimit.Demand{take("a", log),
			take("a", naiveLog{ratelimit.PerDay("day", 10)})}, nil},
		{"two names", []ratelimit.Demand{take("a", log),
			take("a", naiveLog{ratelimit.PerSecond("x", 10)})}, nil},
		{"two algorithms", []ratelimit.Demand{take("a", log), take("a", otherLog{log})}, nil},
		{"same", []ratelimit.Demand{take("a", log), take("a", log)}, ratelimit.ErrDuplicateDemand},
		{"same, another Max", []ratelimit.Demand{take("a", log),
			take("a", naiveLog{ratelimit.PerSecond("second", 99)})}, ratelimit.ErrDuplicateDemand},
		{"same, another Window", []ratelimit.Demand{take("a", log),
			take("a", naiveLog{ratelimit.PerDay("second", 10)})}, ratelimit.ErrDuplicateDemand},
		{"same, another Op", []ratelimit.Demand{take("a", log),
			{Key: "a", Algorithm: log, Op: ratelimit.OpReset}}, ratelimit.ErrDuplicateDemand},
		{"second invalid", []ratelimit.Demand{take("a", log), take("", log)},
			ratelimit.ErrInvalidDemand},
		{"invalid before duplicate",
			[]ratelimit.Demand{take("a", log), take("a", log), take("b", nil)},
			ratelimit.ErrInvalidDemand},
		{"second exceeds", []ratelimit.Demand{take("a", log), {Key: "b", Algorithm: log, N: 11}},
			ratelimit.ErrExceedsLimit},
		{"16", many(16), nil},
		{"16 with duplicate", many(15, take("0", log)), ratelimit.ErrDuplicateDemand},
		{"17", many(17), nil},
		{"17 with duplicate", many(16, take("15", log)), ratelimit.ErrDuplicateDemand},
		{"1000", many(1000), nil},
		{"1000 with another limit", many(999, take("7", naiveLog{ratelimit.PerDay("day", 10)})),
			nil},
		{"1000 with another algorithm", many(999, take("7", otherLog{log})), nil},
		{"1000 with duplicate", many(999, take("7", naiveLog{ratelimit.PerSecond("second", 99)})),
			ratelimit.ErrDuplicateDemand},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := ratelimit.CheckTakeAll(t.Context(), tt.ds, make([]ratelimit.Result, len(tt.ds)))
			if tt.want == nil && err != nil {
				t.Errorf("CheckTakeAll: %v", err)
			}
			if tt.want != nil {
				wantErr(t, err, tt.want)
			}
		})
	}
	for _, room := range []int{0, 1, 3} {
		err := ratelimit.CheckTakeAll(t.Context(), many(2), make([]ratelimit.Result, room))
		if !errors.Is(err, ratelimit.ErrInvalidDemand) {
			t.Errorf("2 demands with room for %d results: %v", room, err)
		}
	}
}

func TestDemandPeek(t *testing.T) {
	const now = 1_800_000_000_000_000
	log := naiveLog{ratelimit.Limit{Max: 3, Window: time.Second}}
	full, keep, _ := ratelimit.Demand{Algorithm: log, Op: ratelimit.OpForce, N: 3}.Step(nil, now)
	if keep <= 0 {
		t.Fatalf("keep of a Force is %v", keep)
	}
	const later = now + 400_000
	refused := ratelimit.Result{Limit: 3, RetryAfter: 600 * time.Millisecond,
		ResetAfter: 600 * time.Millisecond, At: later}
	always := ratelimit.Result{Allowed: true, Limit: 3,
		ResetAfter: 600 * time.Millisecond, At: later}
	tests := []struct {
		d    ratelimit.Demand
		want ratelimit.Result
	}{
		{ratelimit.Demand{Op: ratelimit.OpTake, N: 1}, refused},
		{ratelimit.Demand{Op: ratelimit.OpPeek, N: 2}, refused},
		{ratelimit.Demand{Op: ratelimit.OpForce, N: 99}, always},
		{ratelimit.Demand{Op: ratelimit.OpGiveBack, N: 99, At: now}, always},
		{ratelimit.Demand{Op: ratelimit.OpReset}, always},
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
		case tt.d.Op == ratelimit.OpReset && (keep != 0 || !res.Allowed || res.Remaining != 3):
			t.Errorf("%v of a corrupt state: keep %v, %+v", tt.d.Op, keep, res)
		case tt.d.Op != ratelimit.OpReset && keep >= 0:
			t.Errorf("%v: keep of a corrupt state is %v", tt.d.Op, keep)
		}
	}
	// Peek uses N: two of three units are spent.
	two, _, _ := ratelimit.Demand{Algorithm: log, N: 2}.Step(nil, now)
	for n, want := range map[int64]bool{1: true, 2: false} {
		d := ratelimit.Demand{Key: "k", Algorithm: log, N: n}
		if _, _, res := d.Peek(two, later); res.Allowed != want || res.Remaining != 1 {
			t.Errorf("Peek of a Take of %d: %+v", n, res)
		}
	}
}

// spyLog keeps the demand of its last step.
type spyLog struct {
	naiveLog
	asked *ratelimit.Demand
}

func (a spyLog) Step(
	state []byte, now int64, d ratelimit.Demand,
) ([]byte, time.Duration, ratelimit.Result) {
	*a.asked = d
	return a.naiveLog.Step(state, now, d)
}

func TestDemandPeekAsksForOneUnit(t *testing.T) {
	var asked ratelimit.Demand
	log := spyLog{naiveLog{ratelimit.PerSecond("second", 3)}, &asked}
	for op, want := range map[ratelimit.Op]int64{
		ratelimit.OpTake: 2, ratelimit.OpPeek: 2, ratelimit.OpForce: 1, ratelimit.OpGiveBack: 1,
		ratelimit.OpReset: 1,
	} {
		d := ratelimit.Demand{Key: "k", Algorithm: log, Op: op, N: 2}
		d.Peek(nil, 1_800_000_000_000_000)
		if asked.Op != ratelimit.OpPeek || asked.N != want {
			t.Errorf("Peek of a %v asks %v for %d units, want a peek for %d",
				op, asked.Op, asked.N, want)
		}
		d.Step(nil, 1_800_000_000_000_000)
		if asked != d {
			t.Errorf("Step of a %v asks %+v, want the demand as it is", op, asked)
		}
	}
}

func TestBinding(t *testing.T) {
	ok := func(remaining int64, reset time.Duration) ratelimit.Result {
		return ratelimit.Result{Allowed: true, Remaining: remaining, ResetAfter: reset}
	}
	no := func(retry time.Duration, remaining int64, reset time.Duration) ratelimit.Result {
		return ratelimit.Result{RetryAfter: retry, Remaining: remaining, ResetAfter: reset}
	}
	tests := []struct {
		name    string
		results []ratelimit.Result
		want    int
	}{
		{"one", []ratelimit.Result{ok(1, 1)}, 0},
		{"least remaining", []ratelimit.Result{ok(5, 9), ok(2, 1), ok(3, 9)}, 1},
		{"refused before least remaining", []ratelimit.Result{ok(0, 9), no(1, 5, 1), ok(0, 9)}, 1},
		{"longest to retry", []ratelimit.Result{no(1, 0, 9), no(3, 4, 3), ok(0, 99), no(2, 0, 9)},
			1},
		{"refused alike: least remaining", []ratelimit.Result{no(3, 2, 9), no(3, 1, 3)}, 1},
		{"refused alike: longest to reset", []ratelimit.Result{no(3, 1, 3), no(3, 1, 9)}, 1},
		{"admitted alike: longest to reset", []ratelimit.Result{ok(2, 1), ok(2, 7), ok(2, 5)}, 1},
		{"all alike: the first", []ratelimit.Result{ok(2, 1), ok(2, 1)}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ratelimit.Binding(tt.results); got != tt.want {
				t.Errorf("Binding = %d, want %d", got, tt.want)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("Binding of no results did not panic")
			}
		}()
		ratelimit.Binding(nil)
	})
}

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		got  fmt.Stringer
		want string
	}{
		{ratelimit.OpTake, "take"},
		{ratelimit.OpPeek, "peek"},
		{ratelimit.OpForce, "force"},
		{ratelimit.OpGiveBack, "giveback"},
		{ratelimit.OpReset, "reset"},
		{ratelimit.OpReset + 1, "op(5)"},
		{ratelimit.SourceStore, "store"},
		{ratelimit.SourceCache, "cache"},
		{ratelimit.SourceLocal, "local"},
		{ratelimit.SourceOpen, "open"},
		{ratelimit.Source(200), "source(200)"},
	} {
		if got := tt.got.String(); got != tt.want {
			t.Errorf("String = %q, want %q", got, tt.want)
		}
	}
}

// namedAlgorithm is an algorithm that has only names.
type namedAlgorithm struct{ limit, algorithm string }

func (n namedAlgorithm) Name() string             { return n.algorithm }
func (n namedAlgorithm) Limit() ratelimit.Limit   { return ratelimit.PerMinute(n.limit, 1) }
func (n namedAlgorithm) Validate() error          { return nil }
func (n namedAlgorithm) Script() ratelimit.Script { return ratelimit.Script{} }
func (n namedAlgorithm) Step(
	[]byte, int64, ratelimit.Demand,
) ([]byte, time.Duration, ratelimit.Result) {
	return nil, 0, ratelimit.Result{}
}

func storedKey(key, limit, algorithm string) string {
	return ratelimit.Demand{Key: key, Algorithm: namedAlgorithm{limit, algorithm}, N: 1}.StoredKey()
}

func TestStoredKey(t *testing.T) {
	for _, tt := range []struct{ what, key, want string }{
		{"plain", "user:42", "user:42:1m0s:log2"},
		{"percent and number sign", "a%b#", "a%25b%23:1m0s:log2"},
		{"space, control bytes and others", "a b\x00\n\x7f\xff", "a%20b%00%0A%7F%FF:1m0s:log2"},
		{"UTF-8", "ü", "%C3%BC:1m0s:log2"},
		{"longest", strings.Repeat("x", 120), strings.Repeat("x", 120) + ":1m0s:log2"},
		{"longer", strings.Repeat("x", 121), "#" + hashOf(strings.Repeat("x", 121)) + ":1m0s:log2"},
		{"longer as written", strings.Repeat("\x00", 41),
			"#" + hashOf(strings.Repeat("\x00", 41)) + ":1m0s:log2"},
	} {
		if got := storedKey(tt.key, "1m0s", "log2"); got != tt.want {
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
	d := ratelimit.Demand{Key: strings.Repeat("x", 120),
		Algorithm: namedAlgorithm{"1m0s", "log2"}, N: 1}
	if n := testing.AllocsPerRun(100, func() { _ = d.StoredKey() }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzStoredKey holds that a stored key is bounded and printable, and that its parts, hashes aside,
// can be decoded to the key and the names: no two states share one.
func FuzzStoredKey(f *testing.F) {
	f.Add("user:42", "1m0s", "log2")
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
