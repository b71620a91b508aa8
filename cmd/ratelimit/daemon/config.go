package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

var errFileAndFlags = errors.New("--config has the limits: leave out --limit, --in-flight and " +
	"--block")

// readConfig reads the files of limits and the secret of keys, and takes the settings that the
// flags do not have from the files.
func (c *Serve) readConfig() error {
	if err := c.readLimits(); err != nil {
		return err
	}
	return c.readKeySecret()
}

// readLimits reads the files of --config, or those that variables of envoyproxy/ratelimit name.
// Without either and without --limit there is one limit of 10/1m.
func (c *Serve) readLimits() error {
	if err := c.readEnvoyVariables(); err != nil {
		return err
	}
	switch {
	case c.Config != "":
		c.source.Path = c.Config
	case c.source == (config.Source{}):
		c.Store = cmp.Or(c.Store, "memory")
		if c.Limit == nil { // an empty --limit is a mistake
			c.Limit = config.LimitFlags(ratelimit.Limit{Max: 10, Window: time.Minute})
		}
		return nil
	}
	if c.HasLimits() {
		return errFileAndFlags
	}
	if c.source.XDS != nil {
		c.loaded = &config.Config{Follow: []string{c.source.String()}}
		return nil
	}
	var err error
	if c.loaded, err = c.source.Load(); err != nil && !c.envoy.ForceStart {
		return err
	}
	if f := c.loaded.File; f != nil {
		if c.Store == "" {
			if c.Store, err = storeOf(f); err != nil {
				return err
			}
		}
		c.OnFailure = cmp.Or(c.OnFailure, onFailure(f.OnFailure.Value))
		c.Instances = cmp.Or(c.Instances, f.Instances.Value)
	}
	c.loaded = c.loaded.Settings() // whoever puts the limits in force loads them again
	c.Store = cmp.Or(c.Store, "memory")
	return nil
}

// storeOf returns the URL of the store of a file, with the password of password_file.
func storeOf(f *rules.File) (string, error) {
	store := cmp.Or(f.Store.Value, "memory")
	if f.PasswordFile.Value == "" {
		return store, nil
	}
	password, err := readfile.Credentials(pathOf(f.PasswordFile))
	if err != nil {
		return "", fmt.Errorf("%v: password_file: %w", f.PasswordFile.At, err)
	}
	scheme, rest, ok := strings.Cut(store, "://")
	user, hosts, hasUser := strings.Cut(rest, "@")
	if !hasUser {
		user, hosts = "", rest
	}
	if !ok || strings.Contains(user, ":") {
		return "", fmt.Errorf("%v: password_file needs a store on a server, whose URL has no "+
			"password", f.PasswordFile.At)
	}
	text := url.UserPassword("", strings.TrimRight(string(password), "\r\n")).String()
	return scheme + "://" + user + text + "@" + hosts, nil
}

// pathOf returns the path that a file has, which is relative to that file.
func pathOf(t rules.Text) string {
	if filepath.IsAbs(t.Value) {
		return t.Value
	}
	return filepath.Join(filepath.Dir(t.At.File), t.Value)
}
