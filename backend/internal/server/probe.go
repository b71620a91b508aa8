package server

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// probeTimeout is how long a probe may take. It covers the first connection.
const probeTimeout = 5 * time.Second

const oldestMajor = 7

//go:embed probe.lua
var probeSource string

var probeProgram = newProgram(probeSource)

const untracked = "The server does not track keys for this user (CLIENT TRACKING), " +
	"so refusals are not cached; grant the rights, or use a server that tracks keys."

// probe reports whether the store can work. caches is whether it should cache refusals.
func (e *executor) probe(ctx context.Context, caches bool) (serverstore.Server, error) {
	var infos []map[string]string
	texts, err := e.client.Infos(ctx)
	if err != nil {
		if text, _ := e.client.ErrorReply(err); !strings.HasPrefix(text, "NOPERM ") {
			return serverstore.Server{}, e.probeError("the server does not answer INFO", err)
		}
		texts = nil
	}
	for _, text := range texts {
		infos = append(infos, parseInfo(text))
	}
	found, err := e.words.describe(infos)
	if err != nil {
		return found, err
	}
	if len(infos) == 0 {
		found.Warnings = append(found.Warnings,
			"The server's version and eviction policy are unknown, since this user may not run "+
				"INFO.")
	}
	warning, err := e.tryScript(ctx)
	if err != nil {
		return found, err
	}
	if warning != "" {
		found.Warnings = append(found.Warnings, warning)
	}
	if caches {
		tracks := false
		if e.cache != nil {
			tracks, _ = e.tracks(ctx, e.tracker)
		}
		if !tracks {
			found.Warnings = append(found.Warnings, untracked)
		}
	}
	return found, nil
}

// tracks reports whether the server tracks keys for this user. It tries transactions that read
// nothing. An error means that the server did not reply.
func (e *executor) tracks(ctx context.Context, tracker Tracker) (bool, error) {
	for _, c := range []Command{
		{Verb: "eval_ro", Script: "return ''"},
		{Verb: "evalsha_ro", Script: strings.Repeat("0", 40)}, // no script has this SHA-1
	} {
		c.Gate = new(gate.Gate)
		tracker.RunTracked(ctx, &c)
		if _, refused := e.client.ErrorReply(c.Err); c.Err == nil ||
			e.hasReply(c.Err, "NOSCRIPT ") {
			continue
		} else if refused || e.client.Unsent(c.Err) {
			return false, nil
		}
		return false, c.Err
	}
	return true, nil
}

func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// compatible are servers that call themselves Redis and report a version of their own beside it.
var compatible = []string{"dragonfly", "garnet", "kvrocks"}

// describe returns the oldest of the servers that these replies to INFO describe, with warnings
// about any of them.
func (w Words) describe(infos []map[string]string) (serverstore.Server, error) {
	var found serverstore.Server
	for _, info := range infos {
		name, version := "redis", info["redis_version"]
		if n := info["server_name"]; n != "" {
			name = n
		}
		for _, n := range compatible {
			if info[n+"_version"] != "" {
				name = n
			}
		}
		if v := info["valkey_version"]; v != "" {
			name, version = "valkey", v
		}
		if version == "" {
			return found,
				fmt.Errorf("%s: the server is neither Redis nor Valkey; use one of them: %w",
					w.Package, errors.ErrUnsupported)
		}
		if info["redis_mode"] == "sentinel" || info["server_mode"] == "sentinel" {
			return found, fmt.Errorf("%s: the server is a Sentinel; use %s: %w",
				w.Package, w.Sentinel, errors.ErrUnsupported)
		}
		if major(version) < oldestMajor {
			return found,
				fmt.Errorf("%s: the server is %s %s, and %d.0 is the oldest that works; "+
					"use Redis or Valkey %[4]d.0 or later: %w",
					w.Package, name, version, oldestMajor, errors.ErrUnsupported)
		}
		if found.Version == "" || older(version, found.Version) {
			found.Name, found.Version = name, version
		}
		policy := info["maxmemory_policy"]
		if policy != "" && (found.EvictionPolicy == "" || policy != "noeviction") {
			found.EvictionPolicy = policy
		}
	}
	if found.Name != "" && found.Name != "redis" && found.Name != "valkey" {
		found.Warnings = append(found.Warnings, "The store is not tested on this type of server, "+
			found.Name+"; run the conformance suite on it, or use Redis or Valkey.")
	}
	if p := found.EvictionPolicy; p != "" && p != "noeviction" {
		found.Warnings = append(found.Warnings,
			"With maxmemory-policy "+p+" a server that is short of memory loses admissions; "+
				"set it to noeviction.")
	}
	return found, nil
}

func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(first)
	return n
}

func older(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return len(as) < len(bs)
}

// tryScript runs, in a script, each command that decisions use. It sends EVAL even if the server
// knows the script: it may forget scripts at any time. Through a client for one server the script
// first has keys of two slots; if the server refuses that, tryScript returns a warning.
func (e *executor) tryScript(ctx context.Context) (warning string, err error) {
	keys := []string{e.keys.Spare(""), e.keys.Spare("2")}
	if e.cluster {
		keys = keys[:1]
	}
	err = e.eval(ctx, probeProgram.Source, keys)[0]
	if slots, _ := e.refusesSlots(err); slots {
		e.slotted.Store(true)
		warning = "The server is a cluster, or a proxy that refuses keys of several slots in one " +
			"script: a TakeAll of such keys fails. If it is a cluster, use " + e.words.Cluster +
			"; with this client the keys of a second shard would not be decided."
		if err := e.trySlots(ctx); err != nil {
			return "", e.probeError("EVAL", err)
		}
		keys = keys[:1]
		err = e.eval(ctx, probeProgram.Source, keys)[0]
	}
	if err != nil {
		return "", e.probeError("EVAL", err)
	}
	reply, err := e.runScript(ctx, probeProgram, keys...)
	if err != nil {
		return "", e.probeError("EVALSHA", err)
	}
	if command, refusal, ok := strings.Cut(reply, "\n"); ok {
		return "", e.probeError(command+" in a script", errors.New(refusal))
	}
	return warning, nil
}

// slotStep is the distance of the slots that trySlots tries: the recommended maximum of 1,000
// servers have at least 16 slots each.
const slotStep = 16

// trySlots runs a script on a key of each slotStep-th slot. Each server of a cluster refuses those
// of the others. Its error is that of a key on another server, if there is one.
func (e *executor) trySlots(ctx context.Context) error {
	var keys [][]string
	tried := make(map[int]bool)
	for i := 0; len(keys) < keyspace.NumSlots/slotStep; i++ {
		key := e.keys.Spare(strconv.Itoa(i))
		if slot := keyspace.Slot(key); slot%slotStep == 0 && !tried[slot] {
			tried[slot] = true
			keys = append(keys, []string{key})
		}
	}
	var failed error
	for _, err := range e.eval(ctx, "return ''", keys...) {
		if failed == nil || e.hasReply(err, "MOVED ") {
			failed = err
		}
	}
	return failed
}

// eval sends EVAL for each list of keys, all at once, and returns their errors.
func (e *executor) eval(ctx context.Context, source string, keys ...[]string) []error {
	var calls []*scriptRun
	for _, ks := range keys {
		c := new(scriptRun)
		c.command = Command{Gate: &c.gate, Verb: "eval", Script: source, Keys: ks}
		calls = append(calls, c)
	}
	e.run(ctx, calls)
	errs := make([]error, len(calls))
	for i, c := range calls {
		errs[i] = c.command.Err
	}
	return errs
}

// noLibrary is what probe.lua returns of a library that is missing.
const noLibrary = "no such library"

var errDenied = fmt.Errorf("%w: %w", driver.ErrUnavailable, serverstore.ErrDenied)

// probeError returns the error for a part of the probe, what, that failed with err. It explains
// known replies of a server.
func (e *executor) probeError(what string, err error) error {
	kind, text := driver.ErrUnavailable, what
	msg, ok := e.client.ErrorReply(err)
	if !ok {
		msg = err.Error() // of a command in a script
	}
	switch {
	case strings.HasPrefix(what, "EVAL") && refusesScripts(msg):
		kind, text = errors.ErrUnsupported, noScripts
	case strings.HasPrefix(msg, "ERR unknown command"):
		kind, text = errors.ErrUnsupported, what+": the server has no such command"
	case strings.Contains(msg, " command called from script"),
		strings.Contains(msg, "command is not allowed from script"), msg == noLibrary:
		kind = errors.ErrUnsupported
		text = "the server has no " + what + ", which decisions need; use one that has"
	case strings.HasPrefix(msg, "MOVED "):
		kind = errors.ErrUnsupported
		text = "the server is a node of a cluster; use " + e.words.Cluster
	case strings.HasPrefix(msg, "ERR This instance has cluster support disabled"):
		kind = errors.ErrUnsupported
		text = "the server is not a node of a cluster; use " + e.words.Single
	case strings.HasPrefix(msg, "READONLY "):
		text = "the server is a read-only replica; use its primary"
	case isAuthReply(msg):
		kind = errDenied
		text = "the user or the password is wrong or missing; set those of a user of the server"
	case strings.HasPrefix(msg, "NOPERM "), strings.Contains(msg, "ACL failure in script"),
		strings.Contains(msg, "The user executing the script"):
		kind = errDenied
		text = "the server does not permit this user to run " + what +
			" on keys that begin with the store's prefix; grant it the rights that the package " +
			"comment lists"
	}
	return fmt.Errorf("%s: %s: %w: %w", e.words.Package, text, kind, e.keys.Scrub(err))
}

// isAuthReply reports whether an error reply refuses the user or the password.
func isAuthReply(text string) bool {
	return strings.HasPrefix(text, "NOAUTH ") || strings.HasPrefix(text, "WRONGPASS ")
}

// Denied returns err, the error of a client that could not be made. It wraps
// [serverstore.ErrDenied] if reply, the server's error reply or "", refuses the user.
func Denied(err error, reply string) error {
	if isAuthReply(reply) || strings.HasPrefix(reply, "NOPERM ") {
		return fmt.Errorf("%w: %w", serverstore.ErrDenied, err)
	}
	return err
}
