package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
)

// credentials are the tokens and certificates of the files of the command line, which are read
// again when they change.
type credentials struct {
	access
	certificates *certificates  // nil without files
	grpc         *certificates  // of --grpc-addr; mostly the same
	watcher      *watch.Watcher // nil without files
}

func (c *serveCmd) newCredentials(ctx context.Context, log *slog.Logger) (*credentials, error) {
	s := new(credentials)
	files := c.TLS.files()
	var reads []func() (use func(), err error)
	if c.TLS.Cert != "" {
		s.certificates = &certificates{flags: c.TLS}
		reads = append(reads, s.certificates.read)
	}
	s.grpc = s.certificates
	if own := c.envoy.TLS; own != nil {
		s.grpc = &certificates{flags: tlsFlags{own.Cert, own.Key, own.ClientCA}}
		files, reads = append(files, s.grpc.flags.files()...), append(reads, s.grpc.read)
	}
	if c.ReadTokenFile != "" {
		s.readers = &tokens{path: c.ReadTokenFile}
		files, reads = append(files, c.ReadTokenFile), append(reads, s.readers.read)
	}
	if c.WriteTokenFile != "" {
		s.writers = &tokens{path: c.WriteTokenFile}
		files, reads = append(files, c.WriteTokenFile), append(reads, s.writers.read)
	}
	if len(files) == 0 {
		return s, nil
	}
	load := func(context.Context) ([]string, error) {
		var uses []func()
		for _, read := range reads {
			use, err := read()
			if err != nil {
				return nil, err
			}
			uses = append(uses, use)
		}
		for _, use := range uses {
			use()
		}
		return nil, nil
	}
	var err error
	s.watcher, err = watch.New(ctx, log.With("files", "credentials"), files, load)
	return s, err
}

// read adds nothing without files, and no certificate without TLS.
func (s *credentials) read(add addFunc) {
	if s.watcher == nil {
		return
	}
	status := s.watcher.Status()
	add("ratelimit.credentials.valid", oneIfLoaded(status))
	add("ratelimit.credentials.failures", int64(status.Failed))
	var first time.Time
	for _, c := range []*certificates{s.certificates, s.grpc} {
		if c == nil {
			continue
		}
		if end := c.expiry(); first.IsZero() || end.Before(first) {
			first = end
		}
	}
	if !first.IsZero() {
		add("ratelimit.certificate.expiry.timestamp", first.Unix())
	}
}

// Close stops following the files.
func (s *credentials) Close() {
	if s.watcher != nil {
		s.watcher.Close()
	}
}
