package daemon

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

// right is what a request needs.
type right uint8

const (
	toDecide right = iota // everyone may decide, and end what an id holds
	toRead                // keys and numbers of others
	toWrite               // states without an id
)

// rights are those of requests, by bearer tokens (RFC 6750), which may be the passwords of Basic
// (RFC 7617) too. Reading needs none unless there are tokens for it. Writing always needs one, so
// without tokens for it nobody can.
type rights struct {
	readers, writers *tokens // nil without a file
}

// access refuses requests that lack a right.
type access struct {
	*rights
	trace *trace
}

// newAccess returns what refuses requests without rights, and logs them.
func newAccess(r *rights, t *trace) *access { return &access{r, t} }

// only answers requests that lack a right with 401 or 403 and passes the rest on.
func (a *access) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := a.missing(r, needs(r.URL.Path)); p != nil {
			a.refuse(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers r, which lacks a right, with p.
func (a *access) refuse(w http.ResponseWriter, r *http.Request, p *problem.Problem) {
	a.trace.refusal(w, r, p)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", scheme(r.URL.Path)+` realm="ratelimit"`)
	}
	p.Write(w)
}

// scheme returns the scheme of credentials for a path: browsers ask for a password, and send it as
// the token.
func scheme(path string) string {
	if isPage(path) {
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

// missing returns the answer to r if it lacks a right.
func (a *rights) missing(r *http.Request, needed right) *problem.Problem {
	switch {
	case needed == toDecide, needed == toRead && a.readers == nil:
		return nil
	case needed == toWrite && a.writers == nil:
		return &problem.Problem{Status: http.StatusForbidden, Detail: "This request needs a " +
			"token, and the service has none: start it with --write-token-file."}
	}
	token, ok := tokenOf(r)
	switch {
	case !ok:
	case a.writers.has(token), needed == toRead && a.readers.has(token):
		return nil
	case a.readers.has(token):
		return &problem.Problem{Status: http.StatusForbidden,
			Detail: "The token is one of --read-token-file, which cannot write."}
	}
	return &problem.Problem{Status: http.StatusUnauthorized,
		Detail: "This request needs the header Authorization: Bearer TOKEN, with a token of the " +
			"service. A browser sends it as the password, with any name, and a command that of " +
			"--token-file."}
}

// tokens are those of a file, which has one in each line.
type tokens struct {
	path string
	sums atomic.Pointer[[][sha256.Size]byte]
}

// shortestToken is the least number of bytes of a token: 16 random ones in hexadecimal digits are
// 32, and in base64 22.
const shortestToken = 20

// newTokens returns the tokens of a file, which is not read yet.
func newTokens(path string) *tokens { return &tokens{path: path} }

// read reads the file and puts its tokens in force. After an error those of before are.
func (t *tokens) read() error {
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

// has reports whether token is one of t, in a time that does not depend on which.
func (t *tokens) has(token string) bool {
	if t == nil {
		return false
	}
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, own := range *t.sums.Load() {
		found |= subtle.ConstantTimeCompare(own[:], sum[:])
	}
	return found == 1
}
