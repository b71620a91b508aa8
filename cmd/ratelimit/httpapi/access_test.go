package httpapi

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// basic returns credentials as browsers send them, with token as the password.
func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+token))
}

// TestAccess asks for each right with each token, with and without files of tokens.
func TestAccess(t *testing.T) {
	const reader, writer = "a-token-to-read-with", "a-token-to-write-with"
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	none := new(access.Table)
	both := tokens(t, "an-older-token-to-read\n"+reader+" ann\n", " "+writer+" \n\n")
	for _, tt := range []struct {
		of    *access.Table
		path  string
		token string
		want  int
	}{
		{none, "/v1/decide", "", 204},
		{none, "/v1/top-keys", "", 204},
		{none, "/metrics", "", 204},
		{none, "/v1/reset", "", 403},
		{none, "/v1/force", "Bearer " + writer, 403},
		{none, "/v1/block", "Bearer ", 403},
		{both, "/v1/decide", "", 204},
		{both, "/v1/settle", "Bearer wrong", 204},
		{both, "/healthz", "", 204},
		{both, "/nowhere", "", 204},
		{both, "/v1/top-keys", "", 401},
		{both, "/metrics", "Bearer " + writer + "s", 401},
		{both, "/metrics", "Basic " + reader, 401},
		{both, "/metrics", "bearer " + reader, 204},
		{both, "/metrics", basic(reader), 204},
		{both, "/v1/reset", basic(writer), 204},
		{both, "/dashboard/", "", 401},
		{both, "/dashboard/snapshot", basic(reader), 204},
		{both, "/dashboard/act", basic(reader), 403},
		{both, "/dashboard/act", basic(writer), 204},
		{both, "/dashboard/any/act", "", 401},
		{both, "/dashboard//act", basic(reader), 403},
		{both, "/dashboard/any/act", basic(writer), 204},
		{both, "/dashboard/any/snapshot", "", 401},
		{none, "/dashboard/", "", 204},
		{none, "/dashboard/any/act", "", 403},
		{none, "/dashboard/act", basic(writer), 403},
		{both, "/metrics", "Bearer an-older-token-to-read", 204},
		{both, "/v1/top-keys", "Bearer " + writer, 204},
		{both, "/v1/reset", "", 401},
		{both, "/v1/reset", "Bearer ", 401},
		{both, "/v1/reset", "Bearer " + reader, 403},
		{both, "/v1/reset", "Bearer " + writer, 204},
		{both, "/v1/force", "Bearer " + writer, 204},
		{both, "/v1/block", "Bearer " + writer[:len(writer)-1], 401},
	} {
		r := httptest.NewRequest(http.MethodPost, tt.path, nil)
		if tt.token != "" {
			r.Header.Set("Authorization", tt.token)
		}
		w := httptest.NewRecorder()
		a := NewAccess(tt.of, NewAuditLog(nil, decision.New(nil)))
		a.Only(ok).ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s with %q: %d, want %d", tt.path, tt.token, w.Code, tt.want)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge != "") != (w.Code == 401) {
			t.Errorf("%s with %q: %d has the challenge %q", tt.path, tt.token, w.Code, challenge)
		}
		if strings.Contains(w.Body.String(), "a-token") {
			t.Errorf("%s shows a token: %s", tt.path, w.Body)
		}
	}
}

// tokens returns what files of tokens to read with and to write with have.
func tokens(t *testing.T, readers, writers string) *access.Table {
	t.Helper()
	table := &access.Table{
		Readers: access.NewTokens("read-token-file", apitest.TokenFile(t, readers), false),
		Writers: access.NewTokens("write-token-file", apitest.TokenFile(t, writers), true)}
	for _, f := range []*access.Tokens{table.Readers, table.Writers} {
		if err := f.Read(); err != nil {
			t.Fatal(err)
		}
	}
	return table
}
