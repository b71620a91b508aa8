package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"slices"
)

// A Table has the credentials of a service. It is safe for concurrent use. The zero Table has none.
type Table struct {
	Readers, Writers *Tokens // nil without a file
	File             *File   // nil without a file
}

// Find returns who sends a request with a token, which is empty without one, and a verified
// certificate, which is nil without one. A token that is known comes before a certificate. Who has
// a credential has its rights, and not those of anyone. The time that it takes does not depend on
// which token is found.
func (t *Table) Find(token string, certificate *x509.Certificate) *Caller {
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		own, writer, reader := t.File.token(&sum), t.Writers.find(&sum), t.Readers.find(&sum)
		for _, c := range []*Caller{own, writer, reader} {
			if c != nil {
				return c
			}
		}
	}
	switch {
	case certificate != nil:
		if c := t.File.certificate(certificate); c != nil {
			return c
		}
		return &Caller{Kind: ByCertificate, Name: certificate.Subject.String(), may: t.anyone()}
	case token != "":
		return &Caller{Kind: ByUnknown, may: t.anyone()}
	}
	return withoutCredential[t.anyone()]
}

// withoutCredential has a caller for each set of rights, so that most decisions allocate none.
var withoutCredential = func() (callers [all + 1]*Caller) {
	for may := range callers {
		callers[may] = &Caller{Kind: ByNothing, may: Rights(may)}
	}
	return callers
}()

// anyone returns the rights without a credential.
func (t *Table) anyone() Rights {
	switch {
	case t.File != nil:
		return t.File.current.Load().anyone
	case t.Readers == nil:
		return ToDecide | ToSettle | ToRead
	}
	return ToDecide | ToSettle
}

// HasWriter reports whether there is a credential that may write.
func (t *Table) HasWriter() bool { return t.Writers != nil || t.File.hasWriter() }

// An entry is a credential: a token by its hash, or a certificate by its subject or one of its
// alternative names.
type entry struct {
	Caller
	sum          [sha256.Size]byte
	subject, san string
}

// findToken returns the caller of a token, or nil.
func findToken(entries []entry, sum *[sha256.Size]byte) *Caller {
	found := -1
	for i := range entries {
		equal := subtle.ConstantTimeCompare(entries[i].sum[:], sum[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return nil
	}
	return &entries[found].Caller
}

// has reports whether e is of a certificate.
func (e *entry) has(c *x509.Certificate) bool {
	if e.subject != "" {
		return e.subject == c.Subject.String()
	}
	if slices.Contains(c.DNSNames, e.san) || slices.Contains(c.EmailAddresses, e.san) {
		return true
	}
	for _, u := range c.URIs {
		if u.String() == e.san {
			return true
		}
	}
	for _, ip := range c.IPAddresses {
		if ip.String() == e.san {
			return true
		}
	}
	return false
}
