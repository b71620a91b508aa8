package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// TestPage: after a minute of calls the page has the numbers of all limits, the trial and the keys
// that are refused most, and the actions on a key, for those who have the password.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limiter, page, err := newLimiter(store)
		if err != nil {
			t.Fatal(err)
		}
		defer page.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		call(ctx, limiter)
		time.Sleep(5 * time.Second) // for the list of keys

		handler := withPassword("secret", page)
		send := func(method, path, password string, form url.Values) (status int, body string) {
			r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.SetBasicAuth("ann", password)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		if status, _ := send(http.MethodGet, "/limits/", "wrong", nil); status != 401 {
			t.Errorf("with a wrong password: status %d", status)
		}
		_, index := send(http.MethodGet, "/limits/", "secret", nil)
		for _, want := range []string{
			`<small>120 a minute for each key</small>`, `>stricter</a> <i>trial</i>`,
			`<td><a href="limit?name=minute">minute</a></td>`, `<bdi class="hash">`,
		} {
			if !strings.Contains(index, want) {
				t.Errorf("the page has no %s", want)
			}
		}
		if _, s := send(http.MethodGet, "/limits/snapshot", "secret", nil); !strings.Contains(s,
			`"stricter":`) {
			t.Error("the trial has refused nothing that the limit has admitted")
		}
		token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(index)
		if token == nil {
			t.Fatal("the page has no form")
		}
		_, key := send(http.MethodPost, "/limits/key", "secret",
			url.Values{"token": token[1:], "q": {"user:1"}})
		for _, want := range []string{" of 120 used<", "Reset…", "Block…"} {
			if !strings.Contains(key, want) {
				t.Errorf("the page of a key has no %s", want)
			}
		}
	})
}
