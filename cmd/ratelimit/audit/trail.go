package audit

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
)

// A Sink keeps events. Write must not wait.
type Sink interface {
	// Write gets an event, and the same as JSON in a line with its end.
	Write(e *Event, line []byte)
}

// Options are the options of [New].
type Options struct {
	Sinks []Sink                  // none: the log has lines of the most important writes
	Hash  func(key string) string // nil: keys have no hashes
	Keys  bool                    // sinks get the keys themselves too
}

// refusedAtOnce is how many refusals are noted at once; then there is one a second.
const refusedAtOnce = 60

// A Trail notes events. It is safe for concurrent use. A nil Trail notes nothing.
type Trail struct {
	log  *slog.Logger
	opts Options

	releases lograte.Limit // of the log
	logged   lograte.Limit // refusals of the log
	// Strangers do not suppress what those with a credential try.
	strangers, known lograte.Limit
}

// New returns a trail, whose events log has in short if there is no sink.
func New(log *slog.Logger, o Options) *Trail {
	return &Trail{log: log, opts: o, strangers: lograte.Limit{Burst: refusedAtOnce},
		known: lograte.Limit{Burst: refusedAtOnce}}
}

// On reports whether there is a sink, so that it is worth while to look at a key before a write.
func (t *Trail) On() bool { return t != nil && len(t.opts.Sinks) > 0 }

// Hash returns the hash of a key, or "" if there is none.
func (t *Trail) Hash(key string) string {
	if t == nil || t.opts.Hash == nil || key == "" {
		return ""
	}
	return t.opts.Hash(key)
}

// Refuse notes a request that is refused since a right is missing, if it is not one of too many: 60
// are noted at once, and then one a second, of callers with a credential and of all others. event
// returns it, and is called only for those.
func (t *Trail) Refuse(ctx context.Context, event func() Event) {
	if t == nil {
		return
	}
	limit := &t.strangers
	switch {
	case !t.On():
		limit = &t.logged
	case access.From(ctx).Known():
		limit = &t.known
	}
	if ok, suppressed := limit.Pass(time.Now()); ok {
		e := event()
		e.Outcome, e.Suppressed = Refused, suppressed
		t.Note(ctx, e)
	}
}

// Note notes an event, whose caller is that of ctx. It sets the time, the actor and the hashes, and
// takes the keys away that must not be written.
func (t *Trail) Note(ctx context.Context, e Event) {
	// Programs settle all the time: the log has no line of that.
	if t == nil || !t.On() && e.Action == "settle" && e.Outcome != Refused {
		return
	}
	caller := access.From(ctx)
	e.Time, e.Actor = time.Now().UTC(), Actor{caller.Kind, caller.Name}
	e.Changes = append([]Change{}, e.Changes...)
	for i := range e.Changes {
		c := &e.Changes[i]
		if c.Hash = t.Hash(c.Key); !t.opts.Keys {
			c.Key = ""
		}
	}
	if t.On() {
		t.write(&e)
		return
	}
	t.logShort(ctx, &e)
}

func (t *Trail) write(e *Event) {
	line, err := json.Marshal(e)
	if err != nil { // not of numbers and text
		panic(err)
	}
	line = append(line, '\n')
	for _, s := range t.opts.Sinks {
		s.Write(e, slices.Clip(line))
	}
}

// logShort logs a write or a refusal, of releases at most one a second.
func (t *Trail) logShort(ctx context.Context, e *Event) {
	level, message := slog.LevelInfo, "write"
	switch {
	case e.Outcome == Refused:
		level, message = slog.LevelWarn, "request refused: it has no right"
	case e.Action == "release" && e.Door != Page:
		ok, suppressed := t.releases.Pass(e.Time)
		if !ok {
			return
		}
		e.Suppressed = suppressed
	}
	outcome := e.Outcome
	if e.Outcome == Failed {
		outcome = e.Error
	}
	attrs := []slog.Attr{slog.String("action", e.Action), slog.String("actor", e.Actor.Kind),
		slog.String("name", e.Actor.Name), slog.String("from", e.From),
		slog.String("door", e.Door), slog.String("path", e.Path), slog.Int("status", e.Status),
		slog.Any("limits", e.Limits()), slog.Any("key_hashes", e.hashes()),
		slog.String("outcome", outcome)}
	for _, c := range e.Changes {
		if c.Units != nil && e.Action == "force" {
			attrs = append(attrs, slog.Int64("units", *c.Units))
		}
		if c.ForMS != nil {
			attrs = append(attrs, slog.String("for",
				(time.Duration(*c.ForMS)*time.Millisecond).String()))
		}
	}
	if e.Suppressed > 0 || e.Outcome == Refused || e.Action == "release" {
		attrs = append(attrs, slog.Int("suppressed", e.Suppressed))
	}
	t.log.LogAttrs(ctx, level, message, attrs...)
}
