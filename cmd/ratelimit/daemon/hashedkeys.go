package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// readKeySecret reads the file of --key-secret-file, or the one that a file of limits names.
func (c *Serve) readKeySecret() error {
	path, name := c.KeySecretFile, "--key-secret-file"
	if path == "" && c.loaded != nil && c.loaded.File != nil {
		if of := c.loaded.File.KeySecretFile; of.Value != "" {
			path, name = pathOf(of), fmt.Sprintf("%v: key_secret_file", of.At)
		}
	}
	if path == "" {
		return nil
	}
	text, err := readfile.Credentials(path)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if text = bytes.TrimRight(text, "\r\n"); len(text) < layer.MinSecret {
		return fmt.Errorf("%s: a secret of %d bytes is shorter than %d", name, len(text),
			layer.MinSecret)
	}
	c.secret = text
	return nil
}

// storeURL returns the URL of the store. With a secret, its tag is that of hashed keys.
func (c *Serve) storeURL() string {
	base, query, _ := strings.Cut(c.Store, "?")
	if c.secret == nil || query == "" {
		return c.Store
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		if strings.HasPrefix(p, "tag=") && p != "tag=" {
			params[i] = "tag=/"
		}
	}
	return base + "?" + strings.Join(params, "&")
}

// hashKeys returns a store that hashes keys, and their tags if the URL of the store has some, or
// store itself without a secret.
func (c *Serve) hashKeys(store driver.Store) (driver.Store, error) {
	if c.secret == nil {
		return store, nil
	}
	hashed, err := layer.NewHashedKeys(store, c.secret)
	if err != nil {
		return nil, err
	}
	u, err := backend.ParseURL(c.Store)
	if err != nil {
		return nil, err
	}
	if separator, _ := u.Param("tag"); separator != "" {
		return hashed.WithTag(func(key string) string {
			if tag, _, ok := strings.Cut(key, separator); ok {
				return tag
			}
			return ""
		}), nil
	}
	return hashed, nil
}

// secretUse is a key of two states that count how often services have started: under the key
// itself those with any secret, and under its hash those with the one of this service.
const secretUse = "ratelimit: starts with a secret of keys"

// warnOfNewSecret logs that all limits count from zero because the secret is another one than that
// of earlier services on this store. Of several that start at once with a new secret, one does so.
// Both states are forgotten together, with the same window.
func (g *guardedStore) warnOfNewSecret(ctx context.Context, log *slog.Logger) {
	if g.plain == nil {
		return
	}
	starts := algorithm.FixedWindow(driver.Limit{
		Name: "ratelimit-starts", Max: driver.MaxUnits, Window: driver.MaxWindow})
	count := func(store driver.Store, op driver.Op) (int64, error) {
		d := driver.Demand{Key: secretUse, Algorithm: starts, Op: op, N: 1}
		res, err := store.Take(ctx, d)
		return driver.MaxUnits - res.Remaining, err
	}
	before, err := count(g.plain, driver.OpPeek)
	own, errOwn := count(g.Store.Store, driver.OpTake)
	_, errAny := count(g.plain, driver.OpTake) // last: who has counted here has counted there
	if err != nil || errOwn != nil || errAny != nil {
		log.Debug("whether the secret of keys is new is not known",
			"error", errors.Join(err, errOwn, errAny))
		return
	}
	if before > 0 && own == 1 {
		log.Warn("the secret of keys is new to this store, where services had another one: all " +
			"limits count from zero")
	}
}
