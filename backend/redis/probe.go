package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/internal/server"
)

// Server is what [Store.Probe] found.
type Server struct {
	Name           string   // "redis" or "valkey"; what else the server calls itself
	Version        string   // such as "8.0.2", on a cluster the lowest; empty if the server does not tell
	EvictionPolicy string   // maxmemory-policy, such as "noeviction"; empty if the server does not tell
	Warnings       []string // what works but may go wrong, one sentence each
}

// probeTimeout is how long a probe may take whose context has no deadline. It covers the first connection.
const probeTimeout = 5 * time.Second

const oldestMajor = 7

//go:embed probe.lua
var probeSource string

var probeScript = redis.NewScript(probeSource)

// Probe finds out whether the store can work: whether the server answers, is Redis or Valkey 7.0 or later, runs scripts, and lets this user
// run the commands that decisions need. It is for the start of a program, takes no longer than the context or 5s, and
// leaves nothing on the server. On a cluster all primaries are asked what they are, and one runs the script.
//
// An error says what is missing, and wraps [errors.ErrUnsupported] when it is the wrong type of server or of client, otherwise
// [ratelimit.ErrUnavailable].
func (s *Store) Probe(ctx context.Context) (Server, error) {
	var (
		found Server
		gate  server.Gate
	)
	left, err := s.calls.Do(ctx, probeTimeout, &gate, func(ctx context.Context) error {
		var err error
		found, err = s.probe(ctx)
		return err
	})
	if left {
		return Server{}, fmt.Errorf("redisstore: probe: %w", err)
	}
	return found, err
}

func (s *Store) probe(ctx context.Context) (Server, error) {
	infos, err := s.infos(ctx)
	if err != nil {
		return Server{}, s.probeError("the server does not answer INFO", err)
	}
	found, err := describe(infos)
	if err != nil {
		return found, err
	}
	if len(infos) == 0 {
		found.Warnings = append(found.Warnings, "The server's version and eviction policy are unknown, since this user may not run INFO.")
	}
	if err := s.tryScript(ctx); err != nil {
		return found, err
	}
	return found, nil
}

// infos returns what INFO says on the server, or on each primary of a cluster; nothing where the user may not ask.
func (s *Store) infos(ctx context.Context) ([]map[string]string, error) {
	var (
		mu    sync.Mutex
		infos []map[string]string
	)
	ask := func(ctx context.Context, client redis.Cmdable) error {
		text, err := client.Info(ctx).Result()
		if err != nil {
			if redis.IsPermissionError(err) {
				return nil
			}
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		infos = append(infos, parseInfo(text))
		return nil
	}
	if s.cluster != nil {
		err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return ask(ctx, c) })
		return infos, err
	}
	err := ask(ctx, s.client)
	return infos, err
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
func describe(infos []map[string]string) (Server, error) {
	var found Server
	for _, info := range infos {
		name, version := "redis", info["redis_version"]
		if n := info["server_name"]; n != "" {
			name = n
		}
		if v := info["valkey_version"]; v != "" {
			name, version = "valkey", v
		}
		if version == "" {
			return found, fmt.Errorf("redisstore: the server is neither Redis nor Valkey: %w", errors.ErrUnsupported)
		}
		if info["redis_mode"] == "sentinel" || info["server_mode"] == "sentinel" {
			return found, fmt.Errorf("redisstore: the server is a Sentinel, which wants a client from redis.NewFailoverClient: %w",
				errors.ErrUnsupported)
		}
		if major(version) < oldestMajor {
			return found, fmt.Errorf("redisstore: the server is %s %s, and %d.0 is the oldest that works: %w",
				name, version, oldestMajor, errors.ErrUnsupported)
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
	refused, err := probeScript.Run(ctx, s.client, []string{s.keys.Spare()}).StringSlice()
	if err != nil {
		return s.probeError("scripts", err)
	}
	if len(refused) == 2 {
		return s.probeError(refused[0]+" in a script", errors.New(refused[1]))
	}
	return nil
}

// probeError says in words what an error of the server means for those who set it up.
func (s *Store) probeError(what string, err error) error {
	kind, text := ratelimit.ErrUnavailable, what
	switch msg := err.Error(); {
	case strings.HasPrefix(msg, "ERR unknown command"):
		kind, text = errors.ErrUnsupported, what+": the server has no such command"
	case strings.HasPrefix(msg, "MOVED "):
		kind, text = errors.ErrUnsupported, "the server is a node of a cluster, and wants a *redis.ClusterClient"
	case strings.HasPrefix(msg, "ERR This instance has cluster support disabled"):
		kind, text = errors.ErrUnsupported, "the server is no node of a cluster, and wants a *redis.Client"
	case strings.HasPrefix(msg, "READONLY "):
		text = "the server is a read-only replica"
	case strings.HasPrefix(msg, "NOAUTH "), strings.HasPrefix(msg, "WRONGPASS "):
		text = "the server wants another user or password"
	case strings.HasPrefix(msg, "NOPERM "), strings.Contains(msg, "ACL failure in script"),
		strings.Contains(msg, "The user executing the script"):
		text = "the server does not permit this user to run " + what + " on keys that begin with the store's prefix"
	}
	return fmt.Errorf("redisstore: %s: %w: %w", text, kind, s.keys.Scrub(err))
}
