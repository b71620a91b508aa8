package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// tlsFlags name files in PEM. The certificate is required with the key; with the authorities,
// clients need a certificate of one of them.
type tlsFlags struct {
	Cert     string `env:"TLS_CERT" placeholder:"FILE"`
	Key      string `env:"TLS_KEY" placeholder:"FILE"`
	ClientCA string `env:"TLS_CLIENT_CA" placeholder:"FILE"`
}

func (f tlsFlags) validate() error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("--tls-cert and --tls-key need each other")
	case f.ClientCA != "" && f.Cert == "":
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
	}
	return nil
}

// files are those that are named.
func (f tlsFlags) files() (named []string) {
	for _, file := range []string{f.Cert, f.Key, f.ClientCA} {
		if file != "" {
			named = append(named, file)
		}
	}
	return named
}

// certificates are those of the files.
type certificates struct {
	flags   tlsFlags
	current atomic.Pointer[tls.Config]
}

// protocols are those that clients may choose on a connection with TLS.
var protocols = []string{"h2", "http/1.1"}

// read reads the files and returns a function that puts what it has read in force.
func (c *certificates) read() (use func(), err error) {
	pair, err := tls.LoadX509KeyPair(c.flags.Cert, c.flags.Key)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		NextProtos: protocols}
	if c.flags.ClientCA != "" {
		text, err := os.ReadFile(c.flags.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("TLS: %s has no certificate", c.flags.ClientCA)
		}
	}
	return func() { c.current.Store(config) }, nil
}

// expiry returns when the certificate in force expires.
func (c *certificates) expiry() time.Time {
	return c.current.Load().Certificates[0].Leaf.NotAfter
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
