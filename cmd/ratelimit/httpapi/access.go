package httpapi

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// A Right is what a request needs.
type Right uint8

// The rights.
const (
	ToDecide Right = iota // everyone may decide, and end what an id holds
	toRead                // keys and numbers of others
	ToWrite               // states without an id
)

// Rights are those of requests, by bearer tokens (RFC 6750), which may be the passwords of Basic
// (RFC 7617) too. Reading needs none unless there are tokens for it. Writing always needs one, so
// without tokens for it nobody can.
type Rights struct {
	Readers, Writers *Tokens // nil without a file
}

// Access refuses requests that lack a right.
type Access struct {
	*Rights
	audit *AuditLog
}

// NewAccess returns what refuses requests without rights, and logs them.
func NewAccess(r *Rights, l *AuditLog) *Access { return &Access{r, l} }

// Only answers requests that lack a right with 401 or 403 and passes the rest on.
func (a *Access) Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := a.Missing(r, Needs(r.URL.Path)); p != nil {
			a.refuse(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers r, which lacks a right, with p.
func (a *Access) refuse(w http.ResponseWriter, r *http.Request, p *problem.Problem) {
	a.audit.refusal(w, r, p)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", scheme(r.URL.Path)+` realm="ratelimit"`)
	}
	p.Write(w)
}

// scheme returns the scheme of credentials for a path: browsers ask for a password, and send it as
// the token.
func scheme(path string) string {
	if IsPage(path) {
		return "Basic"
	}
	return "Bearer"
}

// tokenOf returns the token of r, and whether r has one.
func tokenOf(r *http.Request) (token string, ok bool) {
	if _, password, ok := r.BasicAuth(); ok {
		return password, true
	}
	name, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(name, "Bearer")
}

// Missing returns the answer to r if it lacks a right.
func (a *Rights) Missing(r *http.Request, needed Right) *problem.Problem {
	switch {
	case needed == ToDecide, needed == toRead && a.Readers == nil:
		return nil
	case needed == ToWrite && a.Writers == nil:
		return &problem.Problem{Status: http.StatusForbidden, Detail: "This request needs a " +
			"token, and the service has none: start it with --write-token-file."}
	}
	token, ok := tokenOf(r)
	switch {
	case !ok:
	case a.Writers.Has(token), needed == toRead && a.Readers.Has(token):
		return nil
	case a.Readers.Has(token):
		return &problem.Problem{Status: http.StatusForbidden,
			Detail: "The token is one of --read-token-file, which cannot write."}
	}
	return &problem.Problem{Status: http.StatusUnauthorized,
		Detail: "This request needs the header Authorization: Bearer TOKEN, with a token of the " +
			"service. A browser sends it as the password, with any name, and a command that of " +
			"--token-file."}
}

// Tokens are those of a file, which has one in each line.
type Tokens struct {
	path string
	sums atomic.Pointer[[][sha256.Size]byte]
}

// shortestToken is the least number of bytes of a token: 16 random ones in hexadecimal digits are
// 32, and in base64 22.
const shortestToken = 20

// NewTokens returns the tokens of a file, which is not read yet.
func NewTokens(path string) *Tokens { return &Tokens{path: path} }

// Read reads the file and puts its tokens in force. After an error those of before are.
func (t *Tokens) Read() error {
	text, err := readfile.Credentials(t.path)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	var sums [][sha256.Size]byte
	for line := range bytes.Lines(text) {
		token := bytes.TrimSpace(line)
		switch {
		case len(token) == 0:
		case len(token) < shortestToken:
			return fmt.Errorf("tokens: %s has a token of less than %d bytes",
				t.path, shortestToken)
		case bytes.ContainsFunc(token, noToken):
			return fmt.Errorf("tokens: %s has a token with a space, a control character or a byte "+
				"order mark in it", t.path)
		default:
			sums = append(sums, sha256.Sum256(token))
		}
	}
	if len(sums) == 0 {
		return fmt.Errorf("tokens: %s has no token", t.path)
	}
	t.sums.Store(&sums)
	return nil
}

// noToken reports whether r is of no token: requests could not send it, or an editor has put it
// there unseen.
func noToken(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\ufeff' }

// Has reports whether token is one of t, in a time that does not depend on which.
func (t *Tokens) Has(token string) bool {
	if t == nil {
		return false
	}
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, own := range *t.sums.Load() {
		found |= subtle.ConstantTimeCompare(own[:], sum[:])
	}
	return found == 1
}
