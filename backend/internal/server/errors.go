package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
)

// notExecuted are the prefixes of the error replies with which a server refuses a script, so that
// nothing was written.
var notExecuted = []string{
	"ASK ",
	"BUSY ",
	"CLUSTERDOWN ",
	"DENIED ",
	"ERR Error compiling script",
	"ERR Protocol error",
	"ERR This instance has Lua scripting support disabled",
	"ERR max number of clients reached",
	"ERR unknown command",
	"LOADING ",
	"MASTERDOWN ",
	"MISCONF ",
	"MOVED ",
	"NOAUTH ",
	"NOPERM ",
	"NOREPLICAS ",
	"NOSCRIPT ",
	"READONLY ",
	"TRYAGAIN ",
	"WRONGPASS ",
}

// replyKind returns the error that the text of an error reply to a program stands for:
// [errors.ErrUnsupported] for keys of several slots, [driver.ErrCapacity] if the server is out
// of memory, [driver.ErrUnavailable] if nothing was recorded either, and
// [driver.ErrOutcomeUnknown] for a script that may have ended after a write.
func replyKind(text string, program lua.Program) error {
	if slots, ran := refusesSlots(text); slots && !ran {
		return errors.ErrUnsupported
	}
	if strings.HasPrefix(text, "OOM ") {
		return driver.ErrCapacity
	}
	if kind := program.Failure(text); kind != nil {
		return kind
	}
	for _, prefix := range notExecuted {
		if strings.HasPrefix(text, prefix) {
			return driver.ErrUnavailable
		}
	}
	return driver.ErrOutcomeUnknown
}

// noScripts says what is wrong with a server that refuses all scripts.
const noScripts = "the server runs no scripts (EVAL, EVALSHA); use Redis or Valkey 7.0 or later, " +
	"or enable scripts, as with Garnet's --lua"

// refusesScripts reports whether the text of an error reply to EVAL or EVALSHA says that the server
// does not have the command.
func refusesScripts(text string) bool {
	return strings.HasPrefix(text, "ERR unknown command") ||
		strings.HasPrefix(text, "ERR This instance has Lua scripting support disabled")
}

// severalSlots are the prefixes of the error replies, without ERR, with which servers and proxies
// refuse a script on keys of several slots.
var severalSlots = []string{
	"CROSSSLOT ",
	"eval/evalsha command keys must be in same slot",
	"'EVAL' command keys must in same slot",
	"'EVALSHA' command keys must in same slot",
	"Script attempted to access ", // keys that are in another slot or on another server
	"Attempted to access ",        // Valkey 9
}

// refusesSlots reports whether the text of an error reply to a script says that its keys are in
// several slots, and whether the script ran until it used such a key.
func refusesSlots(text string) (refused, ran bool) {
	text = strings.TrimPrefix(text, "ERR ")
	for _, prefix := range severalSlots {
		if strings.HasPrefix(text, prefix) {
			// a server appends the script and the line to an error of a command in it
			return true, strings.HasPrefix(text, "Script ") || strings.Contains(text, "script:")
		}
	}
	return false, false
}

// servers are the servers of a store, with what is needed to describe their errors.
type servers struct {
	client  Client
	cluster bool
	words   Words
	keys    keyspace.Keyspace
}

// hasReply reports whether err is an error reply with one of these beginnings.
func (s *servers) hasReply(err error, prefixes ...string) bool {
	if err == nil {
		return false
	}
	text, ok := s.client.ErrorReply(err)
	if !ok {
		return false
	}
	for _, prefix := range prefixes {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// isTryAgain reports whether nothing was written because the slot of the keys moves: err is the
// reply TRYAGAIN, also if it is wrapped, or a script has read a key that the server does not have.
// A script begins only if the server has all its keys, so one before it in the batch has deleted
// that key.
func (s *servers) isTryAgain(err error) bool {
	var failed *lua.StepError
	if errors.As(err, &failed) {
		// Valkey 9 begins with "Attempted", other servers with "Script attempted".
		return !failed.Wrote && strings.Contains(failed.Text, "ttempted to access a non local key")
	}
	return s.hasReply(err, "TRYAGAIN ")
}

// refusesSlots is the function of this name for an err that is an error reply.
func (s *servers) refusesSlots(err error) (refused, ran bool) {
	if err == nil {
		return false, false
	}
	text, _ := s.client.ErrorReply(err)
	return refusesSlots(text)
}

// failure returns the error for demands whose program failed with err. sent is whether they may
// have been written to a connection.
func (s *servers) failure(err error, sent bool, program lua.Program) error {
	cause := s.keys.Scrub(err)
	if text, ok := s.client.ErrorReply(err); ok {
		kind := driver.ErrUnavailable // a connection that was refused, such as by NOAUTH
		if sent {
			kind = replyKind(text, program)
		}
		if refusesScripts(text) {
			return fmt.Errorf("%s: %s: %w: %w: %w",
				s.words.Package, noScripts, kind, errors.ErrUnsupported, cause)
		}
		if errors.Is(kind, errors.ErrUnsupported) {
			return fmt.Errorf("%s: the keys of a TakeAll are in several slots: %w: %w",
				s.words.Package, kind, cause)
		}
		return fmt.Errorf("%w: %w", kind, cause)
	}
	s.client.Lost(err)
	if sent && !s.client.Unsent(err) {
		return fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, cause)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, cause)
}
