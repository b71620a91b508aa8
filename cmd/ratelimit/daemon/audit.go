package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/dashboard"
)

// AuditFlags say where the audit goes.
type AuditFlags struct {
	Audit     string `env:"AUDIT" placeholder:"FILE"`
	AuditOTLP bool   `name:"audit-otlp" env:"AUDIT_OTLP"`
	AuditKeys bool   `env:"AUDIT_KEYS"`
}

// Validate returns an error for keys without an audit.
func (f *AuditFlags) Validate() error {
	if f.AuditKeys && f.Audit == "" && !f.AuditOTLP {
		return errors.New("--audit-keys needs --audit or --audit-otlp")
	}
	return nil
}

// trail is the audit of a process, with what closes it.
type trail struct {
	*audit.Trail
	file *audit.File // nil without --audit
	otlp *audit.OTLP // nil without --audit-otlp
}

// openAudit returns an audit. Close it.
func (f *AuditFlags) openAudit(
	ctx context.Context, stdout io.Writer, hash func(key string) string, log *slog.Logger,
) (*trail, error) {
	t := new(trail)
	options := audit.Options{Hash: hash, Keys: f.AuditKeys}
	if f.AuditOTLP {
		about, err := aboutService(ctx)
		if err == nil {
			t.otlp, err = audit.NewOTLP(ctx, about, log)
		}
		if err != nil {
			return nil, err
		}
		options.Sinks = append(options.Sinks, t.otlp)
	}
	switch f.Audit {
	case "":
	case "-":
		if stdout == nil {
			stdout = os.Stdout
		}
		t.file = audit.Stream(stdout, log)
	default:
		var err error
		if t.file, err = audit.Open(f.Audit, log); err != nil {
			t.Close()
			return nil, err
		}
	}
	if t.file != nil {
		options.Sinks = append(options.Sinks, t.file)
	}
	t.Trail = audit.New(log, options)
	return t, nil
}

// Close writes what waits.
func (t *trail) Close() {
	if t.file != nil {
		t.file.Close()
	}
	if t.otlp != nil {
		_ = t.otlp.Close() // its exporter has logged why
	}
}

// observe adds nothing without a file.
func (t *trail) observe(add addFunc) {
	if t.file != nil {
		add("ratelimit.audit.lost", t.file.Lost())
	}
}

// acting begins to note an action on the page.
func acting(
	writes *httpapi.AuditLog, r *http.Request, a dashboard.Action,
) (acted func(status int, err error)) {
	e := audit.Event{Action: a.Name, Door: audit.Page, Path: httpapi.PagePath, From: r.RemoteAddr}
	for _, s := range a.Subjects {
		c := audit.Change{Limit: s.Limit.Limit().Name, Key: s.Key}
		if a.Name == "block" {
			c.ForMS = new(a.For.Milliseconds())
		}
		e.Changes = append(e.Changes, c)
	}
	mayNot := func(c audit.Change) bool { return !access.From(r.Context()).MayUse(c.Limit) }
	if !slices.ContainsFunc(e.Changes, mayNot) {
		w := writes.Begin(r.Context(), e)
		return func(status int, err error) { w.End(r.Context(), status, err) }
	}
	return func(status int, err error) {
		writes.Refuse(r.Context(), func() audit.Event {
			e.Status, e.Error = status, err.Error()
			return e
		})
	}
}

// only returns which limits the sender of a request may see.
func only(r *http.Request) func(limit string) bool { return access.From(r.Context()).Only() }
