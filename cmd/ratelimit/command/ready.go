package command

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/ratelimit/daemon"
)

// readyCmd is "ratelimit ready". Its flags and variables for the address are those of the service,
// so that it needs none in the service's own container.
type readyCmd struct {
	Addr    string        `env:"RATELIMIT_ADDR" default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	URL     string        `env:"RATELIMIT_URL" placeholder:"URL"`
	TLSCert string        `name:"tls-cert" env:"RATELIMIT_TLS_CERT" placeholder:"FILE"`
	TLSKey  string        `name:"tls-key" env:"RATELIMIT_TLS_KEY" placeholder:"FILE"`
	Timeout time.Duration `default:"2s" placeholder:"DURATION"`
}

// Validate is called by kong when it has parsed the command line.
func (c *readyCmd) Validate() error {
	if c.Timeout <= 0 {
		return fmt.Errorf("--timeout=%v is not positive", c.Timeout)
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return errors.New("--url is not the URL of a service, such as http://localhost:8080")
		}
		return nil
	}
	if strings.HasPrefix(c.Addr, daemon.UnixPrefix) {
		return nil
	}
	if _, port, err := net.SplitHostPort(c.Addr); err != nil || port == "" || port == "0" {
		return fmt.Errorf("--addr=%s is neither HOST:PORT nor unix:PATH", c.Addr)
	}
	return daemon.TLSFlags{Cert: c.TLSCert, Key: c.TLSKey}.Validate()
}

// Run asks a service whether it is ready.
func (c *readyCmd) Run(ctx context.Context, k *kong.Context) error {
	client, service, err := c.client()
	if err != nil {
		return err
	}
	status, text, err := sendBy(ctx, client, http.MethodGet, service, "/readyz", "", nil)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("not ready: %w", cmp.Or(problemIn("/readyz", status, text),
			fmt.Errorf("/readyz: status %d", status)))
	}
	fmt.Fprintln(k.Stdout, "ready")
	return nil
}

// client returns what asks the service, and its URL.
func (c *readyCmd) client() (*http.Client, string, error) {
	if c.URL != "" {
		return &http.Client{Timeout: c.Timeout}, c.URL, nil
	}
	network, address := "tcp", c.Addr
	if path, ok := strings.CutPrefix(c.Addr, daemon.UnixPrefix); ok {
		network, address = "unix", path
	}
	transport := &http.Transport{ // without a proxy
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			// Without a host, or for all addresses, this is the loopback address.
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	client := &http.Client{Timeout: c.Timeout, Transport: transport}
	if c.TLSCert == "" || network == "unix" { // sockets have no TLS
		return client, "http://localhost", nil
	}
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, "", fmt.Errorf("TLS: %w", err)
	}
	transport.TLSClientConfig = &tls.Config{
		MinVersion: tls.VersionTLS12,
		// For --tls-client-ca, if the authority has signed it for clients too.
		Certificates: []tls.Certificate{pair},
		// The certificate is for the names of the service and not for this address. Nothing secret
		// is sent, and whoever listens here can only say whether the service is ready.
		InsecureSkipVerify: true,
	}
	return client, "https://localhost", nil
}
