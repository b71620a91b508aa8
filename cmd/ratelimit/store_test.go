package main

import (
	"strings"
	"testing"
)

// FuzzStoreURL: of whatever is given for a store's URL, neither the name in the log nor an error shows any of the password.
func FuzzStoreURL(f *testing.F) {
	for _, scheme := range []string{"redis://", "rediss://", "redis+cluster://", "rediss+cluster://", "redis:", "postgres://", "redis+ring://", "://", ""} {
		f.Add(scheme+"user:", "", "", "localhost:6379/0")
		f.Add(scheme+":", "12/", "", "localhost")
		f.Add(scheme+"user:", "12?", "#", "localhost?addr=other:1&read_timeout=x")
		f.Add(scheme+"user:", "%zz", "%", "localhost/first")
		f.Add(scheme+"user:", "12:34/", "[::1", "local host:port")
	}
	const password = "hunter2"
	f.Fuzz(func(t *testing.T, before, more, evenMore, after string) {
		if strings.Contains(before+more+evenMore+after, password) || !strings.Contains(before, ":") {
			t.Skip("no password, or one that is another part as well")
		}
		client, name, err := newRedisClient(before + more + password + evenMore + "@" + after)
		if err == nil {
			defer func() { _ = client.Close() }()
			if client == nil || name == "" {
				t.Fatalf("%v, %q", client, name)
			}
		} else if strings.Contains(err.Error(), password) {
			t.Fatal(err)
		}
		if strings.Contains(name, password) {
			t.Fatal(name)
		}
	})
}
