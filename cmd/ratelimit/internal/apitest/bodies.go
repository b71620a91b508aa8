package apitest

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// Of returns a request for the claims, written as "tokens 40, requests 1", with other fields.
func Of(claims string, more ...string) string {
	var parts []string
	for c := range strings.SplitSeq(claims, ", ") {
		name, n, ok := strings.Cut(c, " ")
		if ok {
			n = `,"n":` + n
		}
		parts = append(parts, fmt.Sprintf(`{"limit":%q,"key":%q%s}`, name, Secret, n))
	}
	return `{` + strings.Join(append(more, `"claims":[`+strings.Join(parts, ",")+`]`), ",") + `}`
}

// Hold returns a request to hold the claims.
func Hold(claims string) string { return Of(claims, `"hold_ms":0`) }

// ID returns a request with the n-th id and other fields.
func ID(n int, more ...string) string {
	return `{` + strings.Join(append(more, fmt.Sprintf(`"id":"$%d"`, n)), ",") + `}`
}

// One returns a request for one limit with another field, if it is not empty.
func One(limit, field string) string {
	if field != "" {
		field = "," + field
	}
	return fmt.Sprintf(`{"limit":%q,"key":%q%s}`, limit, Secret, field)
}

// Forge returns an ID that says that it holds so many tokens.
func Forge(t *testing.T, id, from, to string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || !strings.Contains(string(raw), from) {
		t.Fatalf("%s has no %s: %v", raw, from, err)
	}
	return base64.RawURLEncoding.EncodeToString(
		[]byte(strings.Replace(string(raw), from, to, 1)))
}
