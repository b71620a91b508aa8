// Package serverurl reads the URLs of stores on Redis and Valkey servers, which package serverstore
// documents.
package serverurl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/internal/server"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// A Kind says how servers work together.
type Kind int

// The kinds of servers.
const (
	Single   Kind = iota
	Cluster       // "+cluster"
	Sentinel      // "+sentinel"
)

// suffixes are those of the schemes for each kind.
var suffixes = []string{Single: "", Cluster: "+cluster", Sentinel: "+sentinel"}

// A Config is what a URL says.
type Config struct {
	Kind               Kind
	Addrs              []string // host:port; of the Sentinels if Kind is Sentinel
	Username, Password string
	DB                 int
	TLS                *tls.Config // nil: none

	// Of Sentinels.
	MasterName                         string
	SentinelUsername, SentinelPassword string

	Options serverstore.OpenOptions
	NoCache bool // cache no refusals
}

// A Library describes the URLs of a client library.
type Library struct {
	Plain, TLS string // schemes
	Caches     bool   // it has the parameters of a cache of refusals
}

// Register registers the schemes of a library. open connects in the background, if at all.
func Register(lib Library, open func(Config) (*backend.Store, error)) {
	opener := func(_ context.Context, u *backend.URL) (*backend.Store, error) {
		c, err := lib.parse(u)
		if err != nil {
			return nil, err
		}
		return open(c)
	}
	for _, suffix := range suffixes {
		backend.Register(lib.Plain+suffix, opener)
		backend.Register(lib.TLS+suffix, opener)
	}
}

// parse reads u, which has one of the schemes of lib, and the files that it names. An error wraps
// [driver.ErrInvalid] and quotes no value.
func (lib Library) parse(u *backend.URL) (Config, error) {
	base, suffix, ok := strings.Cut(u.Scheme, "+")
	if ok {
		suffix = "+" + suffix
	}
	c := Config{Username: u.Username, Password: u.Password()}
	c.Kind = Kind(slices.Index(suffixes, suffix))
	c.setOptions(u)
	if lib.Caches {
		c.setCache(u)
	}
	if c.Kind == Sentinel {
		c.SentinelUsername, _ = u.Param("sentinel-user")
		c.SentinelPassword, _ = u.Param("sentinel-password")
	}
	if base == lib.TLS {
		c.setTLS(u)
	}
	if err := u.Check(); err != nil {
		return Config{}, err
	}
	if err := c.setAddress(u); err != nil {
		return Config{}, err
	}
	return c, server.CheckOptions(c.Options)
}

func (c *Config) setOptions(u *backend.URL) {
	prefix, ok := u.Param("prefix")
	if c.Options.Prefix = prefix; ok && prefix == "" {
		u.Invalid("prefix", "it is empty")
	}
	c.Options.Timeout, _ = u.Duration("timeout")
	c.Options.Linger, _ = u.Duration("linger")
	if sep, ok := u.Param("tag"); ok {
		if sep == "" {
			u.Invalid("tag", "it is empty")
		}
		c.Options.Tag = func(key string) string { return upTo(key, sep) }
	}
}

// upTo returns the part of key before the first sep, or "" if key has no sep.
func upTo(key, sep string) string {
	if before, _, ok := strings.Cut(key, sep); ok {
		return before
	}
	return ""
}

func (c *Config) setCache(u *backend.URL) {
	entries, ok := u.Int("cache-entries", 0)
	c.Options.CacheEntries, c.NoCache = entries, ok && entries == 0
	c.Options.CacheBytes, _ = u.Int("cache-bytes", 1)
	c.Options.CacheAge, _ = u.Duration("cache-age")
}

func (c *Config) setTLS(u *backend.URL) {
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	c.TLS.ServerName, _ = u.Param("tls-server-name")
	switch skip, ok := u.Param("tls-skip-hostname"); {
	case ok && skip != "true":
		u.Invalid("tls-skip-hostname", "it is not true")
	case ok && c.TLS.ServerName != "":
		u.Invalid("tls-skip-hostname", "it and tls-server-name exclude each other")
	case ok:
		c.TLS.InsecureSkipVerify = true // of the name: verify has the rest
		c.TLS.VerifyConnection = func(s tls.ConnectionState) error {
			return verify(s.PeerCertificates, c.TLS.RootCAs)
		}
	}
	if file, ok := u.Param("tls-ca"); ok {
		c.TLS.RootCAs = x509.NewCertPool()
		if pem, err := os.ReadFile(file); err != nil {
			u.Invalid("tls-ca", "the file cannot be read")
		} else if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
			u.Invalid("tls-ca", "the file has no certificates in PEM")
		}
	}
	cert, hasCert := u.Param("tls-cert")
	key, hasKey := u.Param("tls-key")
	switch {
	case hasCert != hasKey:
		u.Invalid("tls-cert", "it and tls-key must be given together")
	case hasCert:
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			u.Invalid("tls-cert", "it and tls-key do not name a certificate and its key")
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
}

// verify checks that an authority has signed a certificate, whatever its names. The certificate is
// the first one.
func verify(certificates []*x509.Certificate, authorities *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, c := range certificates[1:] {
		between.AddCert(c)
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between})
	return err
}

// setAddress reads the hosts and the path.
func (c *Config) setAddress(u *backend.URL) error {
	port := "6379"
	if c.Kind == Sentinel {
		port = "26379"
	}
	for _, host := range u.Hosts {
		if strings.LastIndexByte(host, ':') <= strings.LastIndexByte(host, ']') {
			host += ":" + port
		}
		c.Addrs = append(c.Addrs, host)
	}
	path := strings.TrimPrefix(u.Path, "/")
	switch {
	case c.Addrs == nil:
		return invalid("it has no host; write %s://host:port", u.Scheme)
	case c.Kind == Single && len(c.Addrs) > 1:
		return invalid("several hosts need %s+cluster:// or %s+sentinel://", u.Scheme, u.Scheme)
	case c.Kind == Cluster && path != "":
		return invalid("a cluster has no databases; leave the path out")
	case c.Kind == Sentinel:
		c.MasterName, path, _ = strings.Cut(path, "/")
		if c.MasterName == "" {
			return invalid("the name of the primary is missing; write %s://host/name", u.Scheme)
		}
	}
	if path == "" {
		return nil
	}
	db, err := strconv.ParseUint(path, 10, 31)
	if err != nil {
		return invalid("the database is not a number")
	}
	c.DB = int(db)
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w options: the URL of the store: "+format,
		append([]any{driver.ErrInvalid}, args...)...)
}
