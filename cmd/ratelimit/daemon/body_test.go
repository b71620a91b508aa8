package daemon

import (
	"encoding/json"
	"testing"
)

// FuzzClaims: whatever is accepted as claims is what another parser of JSON reads, within bounds.
func FuzzClaims(f *testing.F) {
	for _, body := range []string{
		of("tokens 5, requests"), one("tokens", `"n":1`), `{"claims":[]}`, `{"claims":[{}]}`,
		`{"claims":[{"limit":"a","key":"b","n":null}]}`, `{"claims":[{"limit":"a","limit":"b"}]}`,
		`{"claims":[{"limit":"a","key":"\ud800"},]}`, `{"claims":[[]]}`, `{"claims":`, `{}{}`, ``,
		`{"token":"t","n":[1,2]}`, `{"claims":[],"token":"t"}`, `{"n":[1,null]}`, `{"n":[1e3]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var claims []claimBody
		var token *string
		var n []int64
		form := fields{"claims": claimList(&claims), "token": value(&token, "token"),
			"n": unitList(&n, "n")}
		if p := form.parse(body); p != nil {
			if p.Status != 400 || p.Detail == "" {
				t.Fatalf("%+v", p)
			}
			return
		}
		var want struct {
			Claims []struct {
				Limit *string `json:"limit"`
				Key   *string `json:"key"`
				N     *int64  `json:"n"`
			} `json:"claims"`
			Token *string `json:"token"`
			N     []int64 `json:"n"`
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%s is accepted: %v", body, err)
		}
		if len(claims) != len(want.Claims) || len(claims) > maxClaims || len(n) != len(want.N) ||
			len(n) > maxClaims || !same(token, want.Token) {
			t.Fatalf("%s is %d claims, %v", body, len(claims), n)
		}
		for i, c := range want.Claims {
			if got := claims[i]; !same(got.limit, c.Limit) || !same(got.key, c.Key) ||
				!same(got.n, c.N) {
				t.Fatalf("%s: claim %d is %+v", body, i, got)
			}
		}
		for i := range n {
			if n[i] != want.N[i] || n[i] < 0 {
				t.Fatalf("%s: %v", body, n)
			}
		}
	})
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// FuzzTicket: a text is the token of a reservation or is refused with a problem; none panics.
func FuzzTicket(f *testing.F) {
	for _, text := range []string{
		"", ".", "h.", "h.e30", "-h.eyJ2IjoyLCJpIjo3LCJjIjpbeyJrIjoiYXc9PSIsImwiOlsidG9rZW5zIl0s" +
			"ImEiOlsibG9nMmgiXSwibiI6MX1dfQ",
	} {
		f.Add(text)
	}
	var h *api
	f.Fuzz(func(t *testing.T, text string) {
		if h == nil {
			h = budgetAPI(t, budgetFlags(), asked{t})
		}
		got, p := h.budgets.ticket(&text)
		switch {
		case p == invalidToken || p == unknownToken:
		case p != nil:
			t.Fatalf("%+v", p)
		default:
			for _, c := range got.held {
				if h.budgets.of(c) == nil || c.Key == "" {
					t.Fatalf("%q is of %+v", text, c)
				}
			}
			if len(got.claims) < len(got.held) {
				t.Fatalf("%q has %d places for %d claims", text, len(got.claims), len(got.held))
			}
		}
	})
}
