package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
)

// TLSFlags name files in PEM. The certificate is required with the key; with the authorities,
// clients need a certificate of one of them.
type TLSFlags struct {
	Cert     string `env:"TLS_CERT" placeholder:"FILE"`
	Key      string `env:"TLS_KEY" placeholder:"FILE"`
	ClientCA string `env:"TLS_CLIENT_CA" placeholder:"FILE"`
}

// Validate returns an error if a file is named without one that it needs.
func (f TLSFlags) Validate() error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("--tls-cert and --tls-key need each other")
	case f.ClientCA != "" && f.Cert == "":
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
	}
	return nil
}

// certificates are those of the files.
type certificates struct {
	flags   TLSFlags
	current atomic.Pointer[tls.Config]

	mu          sync.Mutex
	pair        *tls.Certificate
	authorities *x509.CertPool // nil without a file, and before it is read
	last        time.Time      // when the last of authorities expires
}

// protocols are those that clients may choose on a connection with TLS.
var protocols = []string{"h2", "http/1.1"}

// readPair reads the certificate with its key and puts them in force. After an error those of
// before are.
func (c *certificates) readPair() error {
	certificate, err := readfile.Credentials(c.flags.Cert)
	if err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	key, err := readfile.Credentials(c.flags.Key)
	if err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("TLS: %s and %s: %w", c.flags.Cert, c.flags.Key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pair = &pair
	c.use()
	return nil
}

// readAuthorities reads the authorities of clients and puts them in force. After an error those of
// before are.
func (c *certificates) readAuthorities() error {
	text, err := readfile.Credentials(c.flags.ClientCA)
	if err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return fmt.Errorf("TLS: %s has no certificate", c.flags.ClientCA)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorities, c.last = authorities, lastExpiry(text)
	c.use()
	return nil
}

// use puts what was read in force, once all of it is there. A new configuration has new keys for
// the tickets of sessions, so that no client resumes one that authorities of before have vouched
// for.
func (c *certificates) use() {
	if c.pair == nil || c.flags.ClientCA != "" && c.authorities == nil {
		return
	}
	config := &tls.Config{Certificates: []tls.Certificate{*c.pair}, MinVersion: tls.VersionTLS12,
		NextProtos: protocols}
	if c.authorities != nil {
		config.ClientCAs, config.ClientAuth = c.authorities, tls.RequireAndVerifyClientCert
	}
	c.current.Store(config)
}

// lastExpiry returns when the last certificate of a text in PEM expires.
func lastExpiry(text []byte) (last time.Time) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return last
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
}

// expiry returns when the certificate in force expires, and when the last authority of clients
// does, or zero without them.
func (c *certificates) expiry() (own, authorities time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pair.Leaf.NotAfter, c.last
}

// config returns a configuration that uses the newest certificates for each connection.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.current.Load(), nil
		},
	}
}
