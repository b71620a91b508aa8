// Package audit writes who changes what is recorded: an event for each write by a person or a tool,
// and for each request that a right is missing for.
package audit

import (
	"time"

	"github.com/truewindow/ratelimit"
)

// An Event is a line of the audit. docs/audit.md says what each field is.
type Event struct {
	Time    time.Time `json:"time"`
	Action  string    `json:"action"`
	Outcome string    `json:"outcome"`
	Status  int       `json:"status"`
	Actor   Actor     `json:"actor"`
	From    string    `json:"from"`
	Door    string    `json:"door"`
	Path    string    `json:"path"`
	Changes []Change  `json:"changes"`
	// Error has no key.
	Error      string `json:"error,omitempty"`
	Suppressed int    `json:"suppressed,omitempty"`
}

// The outcomes.
const (
	Done    = "done"
	Failed  = "failed"
	Refused = "refused" // a right is missing
)

// The doors.
const (
	API     = "api"
	Page    = "page"
	GRPC    = "grpc"
	Command = "command" // one that asks no service
	Files   = "files"   // of limits, when they are in force
)

// An Actor is who sent a request.
type Actor struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
}

// A Change is what a write does to one key under one limit. Either may be empty in an event that is
// refused.
type Change struct {
	Limit string `json:"limit,omitempty"`
	Hash  string `json:"key_hash,omitempty"`
	// Key is always given by whoever notes an event, and written only if keys are asked for.
	Key string `json:"key,omitempty"`

	// Rate is that of an exception for a time, with what it is for and when it ends.
	Rate string `json:"rate,omitempty"`

	Held  *int64 `json:"held,omitempty"`
	Units *int64 `json:"units,omitempty"`
	ForMS *int64 `json:"for_ms,omitempty"`

	Before *State `json:"before,omitempty"`
	After  *State `json:"after,omitempty"`
}

// A State is what a limit has of a key, with the fields of answers.
type State struct {
	Limit        int64 `json:"limit"`
	Remaining    int64 `json:"remaining"`
	ResetAfterMS int64 `json:"reset_after_ms"`
}

// StateOf returns the state in a result.
func StateOf(r ratelimit.Result) *State {
	return &State{r.Limit.Max, r.Remaining,
		int64((r.ResetAfter + time.Millisecond - 1) / time.Millisecond)}
}

// Limits returns the names of the limits of e, each once.
func (e *Event) Limits() []string { return e.each(func(c *Change) string { return c.Limit }) }

// hashes returns the hashes of the keys of e, each once.
func (e *Event) hashes() []string { return e.each(func(c *Change) string { return c.Hash }) }

func (e *Event) each(of func(*Change) string) []string {
	all, seen := []string{}, make(map[string]bool)
	for i := range e.Changes {
		if text := of(&e.Changes[i]); text != "" && !seen[text] {
			all, seen[text] = append(all, text), true
		}
	}
	return all
}
