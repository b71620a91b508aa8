// Package access says who a request to the service comes from, and what they may do: by bearer
// tokens, by certificates, and for everyone else.
package access

import (
	"cmp"
	"context"
	"os"
	"os/user"
	"slices"
	"strconv"
)

// Rights are what a request may do, or needs.
type Rights uint8

// The rights, which can be joined. Requests that need none of them are answered for everyone.
const (
	ToDecide Rights = 1 << iota // take, hold, peek
	ToSettle                    // end what an id holds
	ToRead                      // keys and numbers of others
	ToWrite                     // states without an id

	all = ToDecide | ToSettle | ToRead | ToWrite
)

// names are the rights as files and problems have them, in the order of their bits.
var names = []string{"decide", "settle", "read", "write"}

// String returns the names of the rights, separated by commas.
func (r Rights) String() string {
	text := ""
	for i, name := range names {
		if r&(1<<i) != 0 {
			if text != "" {
				text += ", "
			}
			text += name
		}
	}
	return text
}

// The kinds of callers.
const (
	ByToken       = "token"       // one of the service
	ByCertificate = "certificate" // that the handshake of TLS has verified
	ByNothing     = "anyone"
	ByUnknown     = "unknown" // a token that the service does not have
	ByUser        = "user"    // of the machine, by a command without a service
	ByFile        = "file"    // of limits, which somebody has written
)

// A Caller is who a request comes from. It does not change.
type Caller struct {
	Kind string
	// Name is that of a file of credentials, or of a certificate without one its subject. It is
	// empty for anyone and unknown.
	Name string

	may    Rights
	limits []string // nil: all
}

// May reports whether c has all of some rights.
func (c *Caller) May(needed Rights) bool { return c.may&needed == needed }

// Known reports whether c has a token of the service or a certificate.
func (c *Caller) Known() bool { return c.Kind == ByToken || c.Kind == ByCertificate }

// MayUse reports whether c may use a limit by its name.
func (c *Caller) MayUse(limit string) bool {
	return c.limits == nil || slices.Contains(c.limits, limit)
}

// Only returns MayUse, or nil if c may use all limits.
func (c *Caller) Only() func(limit string) bool {
	if c.limits == nil {
		return nil
	}
	return c.MayUse
}

type callerKey struct{}

// With returns a context that has a caller.
func With(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

var nobody = &Caller{Kind: ByNothing}

// From returns the caller of a context. Without one it is anyone, with no right.
func From(ctx context.Context) *Caller {
	if c, ok := ctx.Value(callerKey{}).(*Caller); ok {
		return c
	}
	return nobody
}

// User returns the user of the process, who has all rights. One without a name has a number.
func User() *Caller {
	c := &Caller{Kind: ByUser, Name: strconv.Itoa(os.Getuid()), may: all}
	if u, err := user.Current(); err == nil {
		c.Name = cmp.Or(u.Username, u.Uid)
	}
	return c
}

// LimitsFile returns a file of limits, which has no right.
func LimitsFile(path string) *Caller { return &Caller{Kind: ByFile, Name: path} }
