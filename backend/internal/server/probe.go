package server

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// Info is what the stores' packages document as their Server.
type Info struct {
	Name           string
	Version        string
	EvictionPolicy string
	Warnings       []string
}

// probeTimeout is how long a probe may take whose context has no deadline. It covers the first connection.
const probeTimeout = 5 * time.Second

const oldestMajor = 7

//go:embed probe.lua
var probeSource string

var probeProgram = func() algorithm.Program {
	sum := sha1.Sum([]byte(probeSource))
	return algorithm.Program{Source: probeSource, SHA: hex.EncodeToString(sum[:])}
}()

// Probe finds out whether the store can work.
func (s *Store) Probe(ctx context.Context) (Info, error) {
	var (
		found Info
		gate  Gate // stays shut: what a probe sends is no demand
	)
	left, err := s.calls.Do(ctx, probeTimeout, &gate, func(ctx context.Context) error {
		var err error
		found, err = s.probe(ctx)
		return err
	})
	if left {
		return Info{}, fmt.Errorf("%s: probe: %w", s.words.Package, err)
	}
	return found, err
}

func (s *Store) probe(ctx context.Context) (Info, error) {
	var infos []map[string]string
	texts, err := s.client.Infos(ctx)
	if err != nil {
		if text, _ := s.client.ErrorReply(err); !strings.HasPrefix(text, "NOPERM ") {
			return Info{}, s.probeError("the server does not answer INFO", err)
		}
		texts = nil
	}
	for _, text := range texts {
		infos = append(infos, parseInfo(text))
	}
	found, err := s.words.describe(infos)
	if err != nil {
		return found, err
	}
	if len(infos) == 0 {
		found.Warnings = append(found.Warnings, "The server's version and eviction policy are unknown, since this user may not run INFO.")
	}
	if s.bare != "" {
		found.Warnings = append(found.Warnings, s.bare)
	}
	if err := s.tryScript(ctx); err != nil {
		return found, err
	}
	return found, nil
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

// describe returns what the servers are that said infos: the oldest of them, and what is to be said against any.
func (w Words) describe(infos []map[string]string) (Info, error) {
	var found Info
	for _, info := range infos {
		name, version := "redis", info["redis_version"]
		if n := info["server_name"]; n != "" {
			name = n
		}
		if v := info["valkey_version"]; v != "" {
			name, version = "valkey", v
		}
		if version == "" {
			return found, fmt.Errorf("%s: the server is neither Redis nor Valkey: %w", w.Package, errors.ErrUnsupported)
		}
		if info["redis_mode"] == "sentinel" || info["server_mode"] == "sentinel" {
			return found, fmt.Errorf("%s: the server is a Sentinel, which wants %s: %w", w.Package, w.Sentinel, errors.ErrUnsupported)
		}
		if major(version) < oldestMajor {
			return found, fmt.Errorf("%s: the server is %s %s, and %d.0 is the oldest that works: %w",
				w.Package, name, version, oldestMajor, errors.ErrUnsupported)
		}
		if found.Version == "" || older(version, found.Version) {
			found.Name, found.Version = name, version
		}
		if policy := info["maxmemory_policy"]; policy != "" && (found.EvictionPolicy == "" || policy != "noeviction") {
			found.EvictionPolicy = policy
		}
	}
	if found.Name != "" && found.Name != "redis" && found.Name != "valkey" {
		found.Warnings = append(found.Warnings, "The store is not tested on this type of server.")
	}
	if p := found.EvictionPolicy; p != "" && p != "noeviction" {
		found.Warnings = append(found.Warnings,
			"With maxmemory-policy "+p+" a server short of memory forgets what was admitted; set it to noeviction.")
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

// tryScript runs the commands that decisions are made of, inside a script.
func (s *Store) tryScript(ctx context.Context) error {
	reply, err := s.run(ctx, new(Gate), probeProgram, []string{s.keys.Spare()}, nil)
	if err != nil {
		return s.probeError("scripts", err)
	}
	if command, refusal, ok := strings.Cut(reply, "\n"); ok {
		return s.probeError(command+" in a script", errors.New(refusal))
	}
	return nil
}

// probeError says in words what an error of the server means for those who set it up.
func (s *Store) probeError(what string, err error) error {
	kind, text := ratelimit.ErrUnavailable, what
	msg, ok := s.client.ErrorReply(err)
	if !ok {
		msg = err.Error() // of a command in a script
	}
	switch {
	case strings.HasPrefix(msg, "ERR unknown command"):
		kind, text = errors.ErrUnsupported, what+": the server has no such command"
	case strings.HasPrefix(msg, "MOVED "):
		kind, text = errors.ErrUnsupported, "the server is a node of a cluster, and wants "+s.words.Cluster
	case strings.HasPrefix(msg, "ERR This instance has cluster support disabled"):
		kind, text = errors.ErrUnsupported, "the server is no node of a cluster, and wants "+s.words.Single
	case strings.HasPrefix(msg, "READONLY "):
		text = "the server is a read-only replica"
	case strings.HasPrefix(msg, "NOAUTH "), strings.HasPrefix(msg, "WRONGPASS "):
		text = "the server wants another user or password"
	case strings.HasPrefix(msg, "NOPERM "), strings.Contains(msg, "ACL failure in script"),
		strings.Contains(msg, "The user executing the script"):
		text = "the server does not permit this user to run " + what + " on keys that begin with the store's prefix"
	}
	return fmt.Errorf("%s: %s: %w: %w", s.words.Package, text, kind, s.keys.Scrub(err))
}
