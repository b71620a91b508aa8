package daemon

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
)

// credentials are the tokens and certificates of the files of the command line, which are read
// again when they change. Each file is followed alone, so that a bad one does not keep
// tokens in force that were removed from another one.
type credentials struct {
	access.Table
	certificates *certificates // nil without files
	grpc         *certificates // of --grpc-addr; mostly the same
	followed     []followed
}

// A followed is a file of credentials, or a certificate with its key, by the name of its flag.
type followed struct {
	name string
	*watch.Watcher
}

// newCredentials reads the files, and follows them until ctx or Close ends that.
func (c *Serve) newCredentials(ctx context.Context, log *slog.Logger) (*credentials, error) {
	s := new(credentials)
	err := s.read(ctx, c, log)
	if err != nil {
		s.Close()
	}
	return s, err
}

func (s *credentials) read(ctx context.Context, c *Serve, log *slog.Logger) error {
	var failed error
	follow := func(name string, read func() error, files ...string) {
		if failed != nil {
			return
		}
		load := func(context.Context) ([]string, error) { return nil, read() }
		var w *watch.Watcher
		if w, failed = watch.New(ctx, log.With("files", name), files, load); failed == nil {
			s.followed = append(s.followed, followed{name, w})
		}
	}
	followTLS := func(prefix string, flags TLSFlags) *certificates {
		t := &certificates{flags: flags}
		follow(prefix+"tls-cert", t.readPair, flags.Cert, flags.Key)
		if flags.ClientCA != "" {
			follow(prefix+"tls-client-ca", t.readAuthorities, flags.ClientCA)
		}
		return t
	}
	if c.TLS.Cert != "" {
		s.certificates = followTLS("", c.TLS)
	}
	s.grpc = s.certificates
	if own := c.envoy.TLS; own != nil {
		s.grpc = followTLS("grpc-", TLSFlags{own.Cert, own.Key, own.ClientCA})
	}
	if c.ReadTokenFile != "" {
		s.Readers = access.NewTokens("read-token-file", c.ReadTokenFile, false)
		follow("read-token-file", s.Readers.Read, c.ReadTokenFile)
	}
	if c.WriteTokenFile != "" {
		s.Writers = access.NewTokens("write-token-file", c.WriteTokenFile, true)
		follow("write-token-file", s.Writers.Read, c.WriteTokenFile)
	}
	if c.AccessFile != "" {
		s.File = access.NewFile(c.AccessFile)
		follow("access-file", s.File.Read, c.AccessFile)
	}
	return failed
}

// observe adds nothing without files, and no certificate without TLS.
func (s *credentials) observe(add addFunc) {
	for _, f := range s.followed {
		status, label := f.Status(), attribute.String("ratelimit.file", f.name)
		add("ratelimit.credentials.valid", oneIfLoaded(status), label)
		add("ratelimit.credentials.failures", int64(status.Failed), label)
	}
	if s.certificates != nil {
		s.certificates.observe("", add)
	}
	if s.grpc != s.certificates {
		s.grpc.observe("grpc-", add)
	}
}

// observe adds when certificates expire, of flags with a prefix.
func (c *certificates) observe(prefix string, add addFunc) {
	const expiry = "ratelimit.certificate.expiry.timestamp"
	own, authorities := c.expiry()
	add(expiry, own.Unix(), attribute.String("ratelimit.file", prefix+"tls-cert"))
	if !authorities.IsZero() {
		add(expiry, authorities.Unix(), attribute.String("ratelimit.file", prefix+"tls-client-ca"))
	}
}

// Close stops following the files.
func (s *credentials) Close() {
	for _, f := range s.followed {
		f.Close()
	}
}
