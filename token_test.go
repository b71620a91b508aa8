package ratelimit_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

// TestToken: another process settles a reservation from its token alone.
func TestToken(t *testing.T) {
	b := newBudget(t)
	claims := []ratelimit.Claim{{Limiter: b.requests, Key: "a\x00\xff", N: 1}, {Limiter: b.tokens, Key: "k", N: 40}}
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
	if !resumed.Allowed() || len(resumed.Results()) != 2 {
		t.Errorf("%+v", resumed.Results())
	}
	_, err = resumed.Extend(t.Context(), 0, 10)
	noErr(t, err)
	b.left(t, 3, 30)
	noErr(t, resumed.Commit(t.Context(), 0, 25))
	b.left(t, 3, 75)
	if res, err := b.requests.Peek(t.Context(), "a\x00\xff"); err != nil || res.Remaining != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = resumed.Token()
	wantErr(t, err, ratelimit.ErrInvalidDemand)
}

// TestTokenGarbage: what is no token is a typed error and no panic.
func TestTokenGarbage(t *testing.T) {
	b := newBudget(t)
	good, err := mustReserve(t, b.claims(1, 40)...).Token()
	noErr(t, err)
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	claim := `{"k":"aw","l":["requests"],"n":1}`
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
		"no key":            encode(`{"v":1,"c":[{"k":"","l":["requests"],"n":1}]}`),
		"unknown limit":     encode(`{"v":1,"c":[{"k":"aw==","l":["other"],"n":1}]}`),
		"negative units":    encode(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":[-1],"s":[[1]]}]}`),
		"more than claimed": encode(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":[2],"s":[[1]]}]}`),
		"no stamp":          encode(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":[1],"s":[[]]}]}`),
		"a stamp of 0":      encode(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":[1],"s":[[0]]}]}`),
		"no units":          encode(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":[],"s":[]}]}`),
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
	_, err = ratelimit.Resume(encode(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":[1],"s":[[1]]}]}`), b.requests)
	noErr(t, err) // the one that the bad ones differ from
}

// FuzzResume: whatever the token, Resume does not panic, and settling what it returns never leaves
// less charged than nothing.
func FuzzResume(f *testing.F) {
	f.Add("")
	f.Add(`{"v":1,"c":[{"k":"aw==","l":["requests"],"n":1}],"p":[{"u":[1],"s":[[1]]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		b := newBudget(t)
		for _, token := range []string{text, base64.RawURLEncoding.EncodeToString([]byte(text))} {
			r, err := ratelimit.Resume(token, b.requests, b.tokens)
			if err != nil {
				wantErr(t, err, ratelimit.ErrInvalidToken)
				continue
			}
			again, err := r.Token()
			noErr(t, err)
			if _, err := ratelimit.Resume(again, b.requests, b.tokens); err != nil {
				t.Errorf("a token of a resumed reservation: %v", err)
			}
			noErr(t, r.Cancel(t.Context()))
		}
	})
}
