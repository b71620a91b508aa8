package httpapi

import (
	"encoding/json"
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// FuzzBody: whatever is accepted as a request is what another parser of JSON reads, within bounds.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		of("tokens 5, requests"), one("tokens", `"n":1`), `{"claims":[]}`, `{"claims":[{}]}`,
		`{"claims":[{"limit":"a","key":"b","n":null}]}`, `{"claims":[{"limit":"a","limit":"b"}]}`,
		`{"claims":[{"limit":"a","key":"\ud800"},]}`, `{"claims":[[]]}`, `{"claims":`, `{}{}`, ``,
		`{"id":"t","used":[{"limit":"a","n":1}]}`, `{"used":7}`, `{"used":1.5}`, `{"n":1e3}`,
		` {"n":2,"key":"k"} `, `{"key":"k","key":"l"}`, `{"KEY":"k"}`, "{\"key\":\"\xff\"}", `{`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var claims []claimBody
		var key, id *string
		var n *int64
		var used unitsBody
		form := fields{"claims": claimList(&claims, text("claims")),
			"key": value(&key, text("key")), "n": value(&n, text("n")),
			"id": value(&id, text("id")), "used": used.field("used")}
		if p := form.parse(body); p != nil {
			if p.Status != 400 || p.Detail == "" {
				t.Fatalf("%+v", p)
			}
			return
		}
		type claim struct {
			Limit *string `json:"limit"`
			Key   *string `json:"key"`
			N     *int64  `json:"n"`
		}
		var want struct {
			Claims []claim         `json:"claims"`
			Key    *string         `json:"key"`
			N      *int64          `json:"n"`
			ID     *string         `json:"id"`
			Used   json.RawMessage `json:"used"`
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%s is accepted: %v", body, err)
		}
		check := func(got []claimBody, want []claim) {
			if len(got) != len(want) || len(got) > maxClaims {
				t.Fatalf("%s is %d claims", body, len(got))
			}
			for i, c := range want {
				if !same(got[i].limit, c.Limit) || !same(got[i].key, c.Key) ||
					!same(got[i].n, c.N) {
					t.Fatalf("%s: claim %d is %+v", body, i, got[i])
				}
			}
		}
		check(claims, want.Claims)
		var number *int64
		var named []claim
		if want.Used != nil && json.Unmarshal(want.Used, &number) != nil {
			number = nil
			if err := json.Unmarshal(want.Used, &named); err != nil {
				t.Fatalf("%s is accepted: %v", body, err)
			}
		}
		check(used.list, named)
		if !same(key, want.Key) || !same(n, want.N) || !same(id, want.ID) ||
			!same(used.n, number) {
			t.Fatalf("%s is %v, %v, %v, %v", body, key, n, id, used.n)
		}
	})
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// FuzzID: a text is the id of something held or is refused with a problem; none panics.
func FuzzID(f *testing.F) {
	for _, text := range []string{
		"", "e30", "eyJ2IjoyLCJpIjo3LCJjIjpbeyJrIjoiYXc9PSIsImwiOlsidG9rZW5zIl0sImEiOlsibG9nM2giX" +
			"SwibiI6MX1dfQ",
	} {
		f.Add(text)
	}
	store, err := memorystore.New(nil) // what is resumed may be renewed later
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = store.Close() })
	var h *API
	f.Fuzz(func(t *testing.T, text string) {
		if h == nil {
			h = flagsAPI(t, testFlags(), store)
		}
		got, p := h.resume(&text)
		if p != nil {
			if p.Status != 422 {
				t.Fatalf("%+v", p)
			}
			return
		}
		for _, c := range got.Claims() {
			if limitOf(h.decider, c.Limiter.Limits()[0].Name) == nil || c.Key == "" {
				t.Fatalf("%q is of %+v", text, c)
			}
		}
	})
}
