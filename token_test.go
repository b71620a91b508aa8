package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// TestToken: another process can settle a reservation from its token alone.
func TestToken(t *testing.T) {
	b := newBudget(t)
	claims := []ratelimit.Claim{
		{Limiter: b.requests, Key: "a\x00\xff", N: 1}, {Limiter: b.tokens, Key: "k", N: 40},
	}
	r := mustReserve(t, claims...)
	b.clock.advance(time.Second)
	_, err := r.Extend(t.Context(), 0, 20)
	noErr(t, err)
	text, err := r.Token()
	noErr(t, err)

	other := budget{b.clock, b.store,
		newLimiter(t, b.store, ratelimit.PerMinute("requests", 3)),
		newLimiter(t, b.store,
			ratelimit.PerMinute("tokens", 100), ratelimit.PerHour("hourly", 150))}
	resumed, err := ratelimit.Resume(text, other.tokens, other.requests)
	noErr(t, err)
	if !resumed.Allowed() || len(resumed.Results()) != 3 {
		t.Errorf("%+v", resumed.Results())
	}
	extend(t, resumed, true, 0, 10)
	b.left(t, 3, 30)
	noErr(t, resumed.Commit(t.Context(), 0, 25))
	b.left(t, 3, 75)
	if res, err := b.requests.Peek(t.Context(), "a\x00\xff"); err != nil || res.Remaining != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = resumed.Token()
	wantErr(t, err, ratelimit.ErrInvalid)
}

// TestTokenGarbage: a text that is not a token is an ErrInvalidToken and not a panic.
func TestTokenGarbage(t *testing.T) {
	b := newBudget(t)
	good, err := mustReserve(t, b.claims(1, 40)...).Token()
	noErr(t, err)
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	claim := `{"k":"aw","l":["requests"],"n":1}`
	part := func(units string) string {
		return encode(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":` + units + `}]}`)
	}
	bad := map[string]string{
		"empty":             "",
		"not base64":        "!!",
		"cut":               good[:len(good)-8],
		"too long":          strings.Repeat("A", 1<<21),
		"JSON of a string":  encode(`"v"`),
		"no claim":          encode(`{"v":1,"c":[]}`),
		"another version":   encode(`{"v":2,"c":[` + claim + `]}`),
		"unknown field":     encode(`{"v":1,"x":1,"c":[` + claim + `]}`),
		"trailing":          encode(`{"v":1,"c":[` + claim + `]}{}`),
		"trailing bracket":  encode(`{"v":1,"c":[` + claim + `]}}`),
		"no key":            encode(`{"v":1,"c":[{"k":"","l":["requests"],"n":1}]}`),
		"unknown limit":     encode(`{"v":1,"c":[{"k":"aw==","l":["other"],"n":1}]}`),
		"negative units":    part(`[-1],"s":[[1]]`),
		"more than claimed": part(`[2],"s":[[1]]`),
		"no stamp":          part(`[1],"s":[[]]`),
		"a stamp of 0":      part(`[1],"s":[[0]]`),
		"no units":          part(`[],"s":[]`),
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
	_, err = ratelimit.Resume(part(`[1],"s":[[1]]`), b.requests)
	noErr(t, err) // the one that the bad ones differ from
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

// tokenText is the content of a token.
type tokenText struct {
	V int `json:"v"`
	C []struct {
		K []byte   `json:"k"`
		L []string `json:"l"`
		N int64    `json:"n"`
	} `json:"c"`
	P []struct {
		U []int64   `json:"u"`
		S [][]int64 `json:"s"`
	} `json:"p"`
}

// gives reports whether the token names the record, and at least the units, that d gives back.
func (tok tokenText) gives(d driver.Demand) bool {
	for i, c := range tok.C {
		limit := slices.Index(c.L, d.Algorithm.Limit().Name)
		if string(c.K) != d.Key || limit < 0 {
			continue
		}
		for _, p := range tok.P {
			if p.U[i] >= d.N && limit < len(p.S[i]) && p.S[i][limit] == d.At {
				return true
			}
		}
	}
	return false
}

// cancelToken resumes and cancels a reservation if the text is a token, and checks that only
// records which the token names change. It reports whether the text is a token.
func cancelToken(t *testing.T, text string) bool {
	t.Helper()
	clock := newClock()
	store := &wroteStore{mapStore: &mapStore{now: clock.now}}
	b := budget{clock, store.mapStore,
		newLimiter(t, store, ratelimit.PerMinute("requests", 3)),
		newLimiter(t, store, ratelimit.PerMinute("tokens", 100), ratelimit.PerHour("hourly", 150))}
	r, err := ratelimit.Resume(text, b.requests, b.tokens)
	if err != nil {
		wantErr(t, err, ratelimit.ErrInvalidToken)
		return false
	}
	var says tokenText
	raw, err := base64.RawURLEncoding.DecodeString(text)
	noErr(t, err)
	noErr(t, json.Unmarshal(raw, &says))
	again, err := r.Token()
	noErr(t, err)
	if _, err := ratelimit.Resume(again, b.requests, b.tokens); err != nil {
		t.Errorf("a token of a resumed reservation: %v", err)
	}
	if err := r.Cancel(t.Context()); err != nil {
		wantErr(t, err, ratelimit.ErrInvalid) // of two claims on one history
	}
	for _, d := range store.asked {
		if d.Op != driver.OpGiveBack || !says.gives(d) {
			t.Errorf("%s: Cancel asked for %+v", raw, d)
		}
	}
	return true
}

// TestTokenMutated: after some of its bytes have changed, a token is refused, or gives back only
// what it names.
func TestTokenMutated(t *testing.T) {
	b := newBudget(t)
	r := mustReserve(t, b.claims(1, 40)...)
	b.clock.advance(time.Second)
	_, err := r.Extend(t.Context(), 0, 20)
	noErr(t, err)
	text, err := r.Token()
	noErr(t, err)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	noErr(t, err)
	mutations := 1000
	if os.Getenv("RATELIMIT_FULL") != "" {
		mutations = 1_000_000
	}
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

// FuzzResume: whatever the text, Resume does not panic, and settling the reservation changes only
// what the token names.
func FuzzResume(f *testing.F) {
	f.Add("")
	f.Add(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":[1],"s":[[1]]}]}`)
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
	wantErr(t, r.Commit(t.Context(), 1, 10), ratelimit.ErrInvalid)
	_, err = r.Extend(t.Context(), 0, 1)
	wantErr(t, err, ratelimit.ErrInvalid)
	_, err = r.Token()
	wantErr(t, err, ratelimit.ErrInvalid)
	b.left(t, 2, 60)
	r, err = ratelimit.Resume(text, b.requests, b.tokens)
	noErr(t, err)
	noErr(t, r.Commit(t.Context(), 1, 10))
	b.left(t, 2, 90)
}

// TestTokenOfCallsInFlight: a token of calls in flight is not resumed with a limiter of a rate,
// which would not release them, nor the other way round.
func TestTokenOfCallsInFlight(t *testing.T) {
	store := &mapStore{}
	held := newCalls(t, store, 2)
	rate, err := ratelimit.New(store, naiveLog{held.Limits()[0]})
	noErr(t, err)
	for _, made := range []*ratelimit.Limiter{held, rate} {
		r, err := made.Reserve(t.Context(), "k", 1)
		noErr(t, err)
		text, err := r.Token()
		noErr(t, err)
		for _, given := range []*ratelimit.Limiter{held, rate} {
			_, err := ratelimit.Resume(text, given)
			if given == made {
				noErr(t, err)
			} else {
				wantErr(t, err, ratelimit.ErrUnknownLimit)
			}
		}
	}
}
