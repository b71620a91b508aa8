package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestToken: another process can extend and settle a reservation from its token alone.
func TestToken(t *testing.T) {
	b := newBudget(t)
	calls := newCalls(t, b.store, 1)
	r := mustReserve(t, claim(b.requests, 1), claim(calls, 1),
		ratelimit.Claim{Limiter: b.tokens, Key: "a\x00\xff", N: 40})
	_, err := r.Extend(t.Context(), 20)
	noErr(t, err)
	text, err := r.Token()
	noErr(t, err)

	tokens := newBudgets(t, b.store,
		ratelimit.PerMinute("tokens", 100), ratelimit.PerHour("hourly", 150))
	resumed, err := ratelimit.Resume(text, tokens, newCalls(t, b.store, 1), b.requests)
	noErr(t, err)
	if !resumed.Allowed() || len(resumed.Results()) != 3 || len(resumed.Claims()) != 2 {
		t.Errorf("%+v", resumed.Results())
	}
	_, err = resumed.Extend(t.Context(), 10)
	noErr(t, err)
	left := func(want int64) {
		t.Helper()
		if res, err := tokens.Peek(t.Context(), "a\x00\xff"); err != nil || res.Remaining != want {
			t.Errorf("%+v, %v; want %d left", res, err, want)
		}
	}
	left(30)
	noErr(t, resumed.Commit(t.Context(), 25))
	left(75)
	mustReserve(t, claim(calls, 1)) // free
	_, err = resumed.Token()
	wantErr(t, err, ratelimit.ErrInvalid)
}

// TestTokenGarbage: a text that is not a token is an ErrInvalidToken and not a panic.
func TestTokenGarbage(t *testing.T) {
	b := newBudget(t)
	good, err := mustReserve(t, b.claims(1, 40)...).Token()
	noErr(t, err)
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	of := func(claim string) string { return encode(`{"v":2,"i":7,"c":[` + claim + `]}`) }
	const claim = `{"k":"aw==","l":["tokens","hourly"],"a":["naiveh2","naiveh2"],"n":1}`
	bad := map[string]string{
		"empty":            "",
		"not base64":       "!!",
		"cut":              good[:len(good)-8],
		"too long":         strings.Repeat("A", 1<<21),
		"JSON of a string": encode(`"v"`),
		"no claim":         of(``),
		"no ID":            encode(`{"v":2,"c":[` + claim + `]}`),
		"another version":  encode(`{"v":1,"i":7,"c":[` + claim + `]}`),
		"unknown field":    encode(`{"v":2,"i":7,"x":1,"c":[` + claim + `]}`),
		"trailing":         encode(`{"v":2,"i":7,"c":[` + claim + `]}{}`),
		"no key":           of(strings.Replace(claim, "aw==", "", 1)),
		"unknown limit":    of(strings.Replace(claim, "hourly", "other", 1)),
		"fewer algorithms": of(strings.Replace(claim, `,"naiveh2"]`, `]`, 1)),
		"negative units":   of(strings.Replace(claim, `"n":1`, `"n":-1`, 1)),
		"too many units":   of(strings.Replace(claim, `"n":1`, `"n":1099511627777`, 1)),
		"no list":          of(strings.Replace(claim, `["tokens","hourly"]`, `"tokens"`, 1)),
		"claims twice":     of(claim + "," + claim),
	}
	b.store.made()
	for name, text := range bad {
		r, err := ratelimit.Resume(text, b.requests, b.tokens, nil)
		if err == nil || r != nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		wantErr(t, err, ratelimit.ErrInvalidToken)
		if got := errors.Is(err, ratelimit.ErrUnknownLimit); got != (name == "unknown limit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantCalls(t, b.store)
	_, err = ratelimit.Resume(of(claim), b.requests, b.tokens)
	noErr(t, err) // the one that the bad ones differ from
	plain := mustReserve(t, ratelimit.Claim{Limiter: b.requests, Key: "k", N: 1})
	_, err = plain.Token()
	wantErr(t, err, ratelimit.ErrInvalid)
}

// forged returns a token of n claims, each of two limits.
func forged(n int) string {
	var claims []string
	for i := range n {
		key := base64.StdEncoding.EncodeToString(fmt.Append(nil, i))
		claims = append(claims, `{"k":"`+key+`","l":["tokens","hourly"],`+
			`"a":["naiveh2","naiveh2"],"n":1}`)
	}
	return base64.RawURLEncoding.EncodeToString(
		[]byte(`{"v":2,"i":7,"c":[` + strings.Join(claims, ",") + `]}`))
}

// TestTokenMostLimits: a token has at most as many limits as a store decides in one call, so that
// what a stranger makes up costs no more than other calls. Reservations of so many have tokens.
func TestTokenMostLimits(t *testing.T) {
	const most = driver.MaxDemands / 2 // claims
	b := newBudget(t)
	for _, n := range []int{most + 1, driver.MaxDemands, 8_000} {
		r, err := ratelimit.Resume(forged(n), b.tokens)
		wantErr(t, err, ratelimit.ErrInvalidToken)
		if r != nil || !strings.Contains(err.Error(), "256") {
			t.Errorf("%d claims: %v", n, err)
		}
	}
	b.store.made()
	r, err := ratelimit.Resume(forged(most), b.tokens)
	noErr(t, err)
	noErr(t, r.Cancel(t.Context()))
	wantCalls(t, b.store, "all settle")

	var claims []ratelimit.Claim
	for i := range most + 1 {
		claims = append(claims, ratelimit.Claim{Limiter: b.tokens, Key: fmt.Sprint(i), N: 1})
	}
	_, err = ratelimit.ReserveAll(t.Context(), claims...)
	wantErr(t, err, ratelimit.ErrInvalid)
	_, err = ratelimit.AllowAll(t.Context(), claims...)
	wantErr(t, err, ratelimit.ErrInvalid)
	wantCalls(t, b.store)
	text, err := mustReserve(t, claims[:most]...).Token()
	noErr(t, err)
	r, err = ratelimit.Resume(text, b.tokens)
	noErr(t, err)
	noErr(t, r.Commit(t.Context()))

	_, err = ratelimit.New(b.store, slices.Repeat(b.tokens.Algorithms(), most+1)...)
	wantErr(t, err, ratelimit.ErrInvalid)
}

// TestTokenBytes: what Resume allocates for a text that is not a token is a few times its size,
// and the error is short, whatever the text says.
func TestTokenBytes(t *testing.T) {
	b := newBudget(t)
	for name, in := range map[string][3]string{
		"claims": {`{"v":2,"i":7,"c":[`, `{},`, `{}]}`},
		"limits": {`{"v":2,"i":7,"c":[{"k":"aw==","l":[`, `"",`, `""],"a":[],"n":1}]}`},
		"a long name": {`{"v":2,"i":7,"c":[{"k":"aw==","l":["`, `name`,
			`"],"a":["naiveh2"],"n":1}]}`},
		"many names": {`{"v":2,"i":7,"c":[{"k":"aw==","a":["` + strings.Repeat(`","`, 99) +
			`"],"l":["` + strings.Repeat(`name","`, 99), `name`, `"],"n":1}]}`},
		"lists": {`{"v":2,"i":7`, `,"c":[{},{},{}]`, `}`},
		"depth": {`{"v":2,"i":7,"c":`, `[`, ``},
	} {
		text := in[0] + strings.Repeat(in[1], (768_000-len(in[0])-len(in[2]))/len(in[1])) + in[2]
		text = base64.RawURLEncoding.EncodeToString([]byte(text))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ratelimit.Resume(text, b.tokens)
		runtime.ReadMemStats(&after)
		wantErr(t, err, ratelimit.ErrInvalidToken)
		if made := after.TotalAlloc - before.TotalAlloc; made > 16<<20 || len(err.Error()) > 1000 {
			t.Errorf("%s: %d bytes allocated, and an error of %d bytes", name, made,
				len(err.Error()))
		}
	}
}

// TestTokenTooLong: Token does not make a token that Resume would not accept, and the reservation
// can then be settled without one.
func TestTokenTooLong(t *testing.T) {
	b := newBudget(t)
	for _, tt := range []struct {
		key  int // bytes
		want error
	}{{500_000, nil}, {700_000, ratelimit.ErrInvalidToken}} {
		key := strings.Repeat("k", tt.key)
		r := mustReserve(t, ratelimit.Claim{Limiter: b.tokens, Key: key, N: 40})
		text, err := r.Token()
		if !errors.Is(err, tt.want) || (err == nil) != (text != "") {
			t.Fatalf("a key of %d bytes: %d bytes of a token, %v", tt.key, len(text), err)
		}
		if err == nil {
			r, err = ratelimit.Resume(text, b.tokens)
			noErr(t, err)
		} else if strings.Contains(err.Error(), "kk") {
			t.Error("the error has the key")
		}
		noErr(t, r.Commit(t.Context(), 10))
		if res, err := b.tokens.Peek(t.Context(), key); err != nil || res.Remaining != 90 {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

// wroteStore keeps the demands of its calls.
type wroteStore struct {
	*mapStore
	asked []driver.Demand
}

func (s *wroteStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	s.asked = append(s.asked, d)
	return s.mapStore.Take(ctx, d)
}

func (s *wroteStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	s.asked = append(s.asked, ds...)
	return s.mapStore.TakeAll(ctx, ds, out)
}

// cancelToken resumes and cancels a reservation if the text is a token, and checks that only the
// holds that the token names are settled, and no more than a store settles in one call. It reports
// whether the text is a token.
func cancelToken(t *testing.T, text string) bool {
	t.Helper()
	store := &wroteStore{mapStore: &mapStore{now: newClock().now}}
	r, err := ratelimit.Resume(text,
		newBudgets(t, store, ratelimit.PerMinute("requests", 3)),
		newBudgets(t, store, ratelimit.PerMinute("tokens", 100), ratelimit.PerHour("hourly", 150)))
	if err != nil {
		wantErr(t, err, ratelimit.ErrInvalidToken)
		return false
	}
	var says struct {
		ID     uint64 `json:"i"`
		Claims []struct {
			Key []byte `json:"k"`
		} `json:"c"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	noErr(t, err)
	noErr(t, json.Unmarshal(raw, &says))
	noErr(t, r.Cancel(t.Context()))
	if len(store.asked) > driver.MaxDemands {
		t.Errorf("Cancel asked for %d demands", len(store.asked))
	}
	for _, d := range store.asked {
		named := false
		for _, c := range says.Claims {
			named = named || string(c.Key) == d.Key
		}
		if d.Op != driver.OpSettle || d.ID != says.ID || d.N != 0 || !named {
			t.Errorf("%s: Cancel asked for %+v", raw, d)
		}
	}
	return true
}

// TestTokenMutated: after some of its bytes have changed, a token is refused, or settles only what
// it names.
func TestTokenMutated(t *testing.T) {
	b := newBudget(t)
	r := mustReserve(t, b.claims(1, 40)...)
	text, err := r.Token()
	noErr(t, err)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	noErr(t, err)
	mutations := depth.Of(1000, 1_000_000)
	random := rand.New(rand.NewPCG(1, 2))
	tokens := 0
	const written = `0123456789-.eE"[]{}:,kuspncvl AZaz=`
	for range mutations {
		mutated := bytes.Clone(raw)
		for range 1 + random.IntN(3) {
			i := random.IntN(len(mutated))
			switch with := written[random.IntN(len(written))]; random.IntN(4) {
			case 0:
				mutated = slices.Delete(mutated, i, min(len(mutated), i+1+random.IntN(4)))
			case 1:
				mutated = slices.Insert(mutated, i, with)
			case 2:
				mutated[i] ^= 1 << random.IntN(8)
			default:
				mutated[i] = with
			}
		}
		if cancelToken(t, base64.RawURLEncoding.EncodeToString(mutated)) {
			tokens++
		}
	}
	if tokens == 0 || tokens == mutations {
		t.Errorf("%d of %d are tokens: this test proves nothing", tokens, mutations)
	}
	t.Logf("%d of %d are tokens", tokens, mutations)
}

// FuzzResume: whatever the text, Resume does not panic, and canceling the reservation settles only
// what the token names, at most as many limits as a store settles in one call.
func FuzzResume(f *testing.F) {
	f.Add("")
	f.Add(`{"v":2,"i":7,"c":[{"k":"aw==","l":["requests"],"a":["naiveh2"],"n":1}]}`)
	f.Add(forged(3))
	f.Add(forged(driver.MaxDemands/2 + 1))
	f.Fuzz(func(t *testing.T, text string) {
		cancelToken(t, text)
		cancelToken(t, base64.RawURLEncoding.EncodeToString([]byte(text)))
	})
}

// TestTokenTakesOver: after Token a reservation can be settled only from the token.
func TestTokenTakesOver(t *testing.T) {
	b := newBudget(t)
	r := mustReserve(t, b.claims(1, 40)...)
	text, err := r.Token()
	noErr(t, err)
	noErr(t, r.Cancel(t.Context()))
	wantErr(t, r.Commit(t.Context(), 10), ratelimit.ErrInvalid)
	_, err = r.Extend(t.Context(), 1)
	wantErr(t, err, ratelimit.ErrInvalid)
	_, err = r.Token()
	wantErr(t, err, ratelimit.ErrInvalid)
	b.left(t, 2, 60)
	r, err = ratelimit.Resume(text, b.tokens)
	noErr(t, err)
	noErr(t, r.Commit(t.Context(), 10))
	b.left(t, 2, 90)
}

// TestResumeHolds: what a token holds stays held when it is resumed, however little of its time-out
// is left.
func TestResumeHolds(t *testing.T) {
	for _, d := range []time.Duration{0, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := &mapStore{}
			calls := newCalls(t, store, 1)
			c := claim(calls, 1)
			c.HoldTimeout = d
			text, err := mustReserve(t, c).Token()
			noErr(t, err)
			if d == 0 {
				d = time.Minute
			}
			time.Sleep(d - 1100*time.Millisecond)
			r, err := ratelimit.Resume(text, calls)
			noErr(t, err)
			for range 600 {
				time.Sleep(100 * time.Millisecond)
				if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
					t.Fatalf("%+v, %v; want the unit held", res, err)
				}
			}
			noErr(t, r.Cancel(t.Context()))
		})
	}
}
