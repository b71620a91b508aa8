package httpapi

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Access refuses requests that lack a right, by bearer tokens (RFC 6750), which may be the
// passwords of Basic (RFC 7617) too, and by certificates.
type Access struct {
	table *access.Table
	audit *AuditLog
}

// NewAccess returns what refuses requests without rights, and notes them.
func NewAccess(t *access.Table, l *AuditLog) *Access { return &Access{t, l} }

// Only answers requests that lack a right with 401 or 403 and passes the rest on, with their caller
// in the context.
func (a *Access) Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := a.caller(r)
		if caller.Kind != access.ByNothing { // which a context without a caller has
			r = r.WithContext(access.With(r.Context(), caller))
		}
		p := a.missing(caller, Needs(r.URL.Path))
		if p == nil && r.URL.Path == MetricsPath && caller.Only() != nil {
			p = allLimits
		}
		if p != nil {
			a.audit.refuse(w, r, p, func(e *audit.Event) { a.audit.wanted(w, r, e) })
			return
		}
		next.ServeHTTP(w, r)
	})
}

// caller returns who sends r. What a proxy asks about has the token of its client.
func (a *Access) caller(r *http.Request) *access.Caller {
	token := ""
	if !isCheck(r.URL.Path) {
		token = tokenOf(r)
	}
	var certificate *x509.Certificate
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		certificate = r.TLS.PeerCertificates[0]
	}
	return a.table.Find(token, certificate)
}

// tokenOf returns the token of r, or "".
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	name, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(name, "Bearer") {
		return ""
	}
	return token
}

var (
	// allLimits is the answer to a caller with some limits only, of what is of all.
	allLimits = &problem.Problem{Status: http.StatusForbidden,
		Detail: "The credential is limited to some limits, and the metrics are of all."}
	// otherLimit is the answer to a caller who may not use a limit of a request.
	otherLimit = &problem.Problem{Status: http.StatusForbidden,
		Detail: "The credential is limited to other limits than that of this request."}
)

// missing returns the answer to a request of c if that lacks a right.
func (a *Access) missing(c *access.Caller, needed access.Rights) *problem.Problem {
	switch {
	case c.May(needed):
		return nil
	case needed == access.ToWrite && !a.table.HasWriter():
		return &problem.Problem{Status: http.StatusForbidden, Detail: "This request needs a " +
			"token, and the service has none: start it with --write-token-file."}
	case c.Kind == access.ByToken:
		return &problem.Problem{Status: http.StatusForbidden,
			Detail: fmt.Sprintf("The token %q has not the right: %v.", c.Name, needed)}
	}
	return &problem.Problem{Status: http.StatusUnauthorized,
		Detail: "This request needs the header Authorization: Bearer TOKEN, with a token of the " +
			"service. A browser sends it as the password, with any name, and a command that of " +
			"--token-file."}
}

// scheme returns the scheme of credentials for a path: browsers ask for a password, and send it as
// the token.
func scheme(path string) string {
	if IsPage(path) {
		return "Basic"
	}
	return "Bearer"
}
