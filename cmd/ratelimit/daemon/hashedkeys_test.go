package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/truewindow/ratelimit/backend"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

const (
	secretA = "a-secret-of-tests-with-32-bytes!"
	secretB = "another-secret-of-the-same-tests"
)

// TestKeySecret: the secret is that of the flag, or of a file of limits, relative to that. A wrong
// one is an error with its place, and without the secret itself.
func TestKeySecret(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	apitest.WriteFile(t, path("a"), secretA+"\n")
	apitest.WriteFile(t, path("b"), secretB)
	apitest.WriteFile(t, path("short"), secretA[1:]+"\r\n")
	for _, tt := range []struct{ flag, inFile, want, err string }{
		{want: ""},
		{flag: path("a"), want: secretA},
		{inFile: "b", want: secretB},
		{inFile: path("b"), want: secretB},
		{flag: path("a"), inFile: "b", want: secretA},
		{flag: path("short"), err: "--key-secret-file: a secret of 31 bytes is shorter than 32"},
		{inFile: "short", err: "limits.yaml:1:18: key_secret_file: a secret of 31 bytes"},
		{inFile: "none", err: "limits.yaml:1:18: key_secret_file: stat"},
		{flag: dir, err: "--key-secret-file: read " + dir},
	} {
		limits := "limits: [{name: a, max: 1/1h}]\n"
		if tt.inFile != "" {
			limits = "key_secret_file: " + tt.inFile + "\n" + limits
		}
		apitest.WriteFile(t, path("limits.yaml"), limits)
		c := &Serve{KeySecretFile: tt.flag, Config: path("limits.yaml")}
		err := c.readConfig()
		if string(c.secret) != tt.want || (err != nil) != (tt.err != "") ||
			err != nil && (!strings.Contains(err.Error(), tt.err) ||
				strings.Contains(err.Error(), secretA[2:])) {
			t.Errorf("%+v: secret %q, error %v", tt, c.secret, err)
		}
	}
}

// TestStoreURLWithSecret: with a secret the store gets the tag of hashed keys, if it has one.
func TestStoreURLWithSecret(t *testing.T) {
	for plain, hashed := range map[string]string{
		"redis://h": "redis://h",
		"redis://u:a&tag=b@h/0?tag=%3A&timeout=1s": "redis://u:a&tag=b@h/0?tag=/&timeout=1s",
		"redis://h?prefix=tag&tag=/":               "redis://h?prefix=tag&tag=/",
		"redis://h?tag=":                           "redis://h?tag=",
	} {
		c := &Serve{Store: plain}
		if got := c.storeURL(); got != plain {
			t.Errorf("%s without a secret: %s", plain, got)
		}
		if c.secret = []byte(secretA); c.storeURL() != hashed {
			t.Errorf("%s with a secret: %s, want %s", plain, c.storeURL(), hashed)
		}
	}
}

// keysInside is a store that notes keys, and decides nothing.
type keysInside struct {
	driver.Store
	keys []string
}

func (s *keysInside) Take(_ context.Context, d driver.Demand) (driver.Result, error) {
	s.keys = append(s.keys, d.Key)
	return driver.Result{}, nil
}

// TestHashKeysTag: the tag of the URL is hashed apart.
func TestHashKeysTag(t *testing.T) {
	for url, one := range map[string]bool{
		"redis://h?tag=%3A": true, "redis://h?tag=/": false, "redis://h": false,
	} {
		keys := &keysInside{}
		c := &Serve{Store: url, secret: []byte(secretA)}
		s, err := c.hashKeys(keys)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"tenant:a", "tenant:b", "tenant"} {
			_, _ = s.Take(t.Context(), driver.Demand{Key: key})
		}
		tags := make(map[string]bool)
		for _, key := range keys.keys {
			tag := layer.HashedTag(key)
			if tag == "" {
				tag = key
			}
			tags[tag] = true
		}
		if len(keys.keys) != 3 || (len(tags) == 1) != one ||
			strings.Contains(fmt.Sprint(keys.keys), "tenant") {
			t.Errorf("%s: keys inside %q", url, keys.keys)
		}
	}
}

// TestNewSecret: a secret that is new to the store, which had another one, is logged once, however
// many services start with it at a time.
func TestNewSecret(t *testing.T) {
	memory, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for i, tt := range []struct {
		secret string
		want   int
	}{{secretA, 0}, {secretA, 0}, {secretB, 1}, {secretB, 0}, {secretA, 0}, {"", 0}} {
		var log apitest.Log
		var starting sync.WaitGroup
		for range 10 {
			starting.Go(func() {
				c := &Serve{Store: "redis://h"}
				g := &guardedStore{Store: &backend.Store{Store: memory}}
				if tt.secret != "" {
					c.secret, g.plain = []byte(tt.secret), memory
				}
				var err error
				if g.Store.Store, err = c.hashKeys(memory); err != nil {
					t.Error(err)
				}
				g.warnOfNewSecret(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
			})
		}
		starting.Wait()
		if got := strings.Count(log.String(), "the secret of keys is new"); got != tt.want {
			t.Errorf("round %d: %d warnings, want %d: %s", i, got, tt.want, log.String())
		}
	}
}
