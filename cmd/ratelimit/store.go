package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// probeTimeout bounds the question to the server at the start, so that a server that does not answer delays nothing.
const probeTimeout = 500 * time.Millisecond

// dialTimeout is short, and dials are not repeated, so that the client notices soon that a server is away, and that it is back.
const dialTimeout = 500 * time.Millisecond

// daemonStore is a store with what the daemon does to it besides deciding.
type daemonStore struct {
	ratelimit.Store
	name  string // for the log: without credentials
	check func(ctx context.Context, log *slog.Logger) error
	close func() error
}

// onServer tells that the state lives on a server.
func (c *serveCmd) onServer() bool { return c.Store != "memory" }

// openStore does no I/O.
func (c *serveCmd) openStore() (*daemonStore, error) {
	if !c.onServer() {
		store, err := memorystore.New(&memorystore.Options{MaxKeys: c.MaxKeys})
		if err != nil {
			return nil, err
		}
		check := func(context.Context, *slog.Logger) error { return nil }
		return &daemonStore{Store: store, name: "memory", check: check, close: store.Close}, nil
	}
	client, name, err := newRedisClient(c.Store)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(client, c.OnFailure.Policy, &redisstore.Options{Prefix: c.Prefix, Timeout: c.Timeout})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	check := func(ctx context.Context, log *slog.Logger) error { return checkServer(ctx, store, log) }
	return &daemonStore{Store: store, name: name, check: check, close: client.Close}, nil
}

// checkServer asks the server what it is. An error says that it is of the wrong type or refuses the user; whatever else is wrong may
// pass, and is only logged.
func checkServer(ctx context.Context, store *redisstore.Store, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	server, err := store.Probe(ctx)
	if errors.Is(err, errors.ErrUnsupported) || redis.IsAuthError(err) || redis.IsPermissionError(err) {
		return err
	}
	if err != nil {
		log.Error("the store cannot decide; until it can, the policy of --on-failure does", "error", err)
		return nil
	}
	log.Info("the store answers", "server", server.Name, "version", server.Version)
	for _, warning := range server.Warnings {
		log.Warn(warning)
	}
	return nil
}

var errStoreURL = errors.New("the store is neither memory nor a URL such as redis://user:password@host:6379/0 " +
	"with special characters in the password percent-encoded")

// newRedisClient returns the client for a URL and the part of the URL that may be shown. The errors of package url are not wrapped:
// they quote the URL, and a password with it.
func newRedisClient(raw string) (client redis.UniversalClient, name string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || strings.Contains(u.Host+u.Path+u.RawQuery+u.Fragment, "@") {
		return nil, "", errStoreURL // an @ there belongs to a password that was not encoded
	}
	name = u.Scheme + "://" + u.Host
	switch scheme, kind, _ := strings.Cut(u.Scheme, "+"); {
	case scheme != "redis" && scheme != "rediss":
		return nil, "", errStoreURL
	case kind == "":
		opts, err := redis.ParseURL(u.String())
		if err != nil {
			return nil, "", fmt.Errorf("the URL of the store: %w", err)
		}
		opts.DialTimeout = cmp.Or(opts.DialTimeout, dialTimeout)
		opts.DialerRetries = 1
		return redis.NewClient(opts), name, nil
	case kind == "cluster":
		u.Scheme = scheme
		opts, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, "", fmt.Errorf("the URL of the store: %w", err)
		}
		opts.DialTimeout = cmp.Or(opts.DialTimeout, dialTimeout)
		opts.DialerRetries = cmp.Or(opts.DialerRetries, 1)
		return redis.NewClusterClient(opts), name, nil
	}
	return nil, "", errStoreURL
}
