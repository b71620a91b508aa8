package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
)

// TLS are the paths of files in PEM, which are read for each connection, so that new ones are used
// when they are there.
type TLS struct {
	Cert, Key  string // of this client; empty: it has none
	CA         string // of those who sign certificates of servers; empty: those of the system
	ServerName string // in the certificate of the server; empty: the host of Server
}

// pingEvery is how often a stream without messages is tested. Servers of gRPC end the connections
// of clients that ping more often than every five minutes.
const pingEvery = 6 * time.Minute

// open opens a stream and sends its first request.
func open(ctx context.Context, s Settings) (*stream, error) {
	secure := insecure.NewCredentials()
	if s.TLS != nil {
		secure = &fresh{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), *s.TLS}
	}
	conn, err := grpc.NewClient(s.Server, grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: pingEvery, Timeout: 20 * time.Second}))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.New(s.Headers)))
	opened := &stream{node: nodeOf(s), close: func() {
		cancel()
		_ = conn.Close() // it only reports that it was closed
	}}
	opened.AggregatedDiscoveryService_StreamAggregatedResourcesClient, err =
		discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err == nil {
		err = opened.request(new(discovery.DiscoveryRequest))
	}
	if err != nil {
		opened.close()
		return nil, err
	}
	return opened, nil
}

// fresh are credentials that read their files for each handshake.
type fresh struct {
	credentials.TransportCredentials
	files TLS
}

func (f *fresh) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	c, err := f.files.read()
	if err != nil {
		return nil, nil, fmt.Errorf("TLS: %w", err)
	}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, conn)
}

func (f *fresh) Clone() credentials.TransportCredentials {
	return &fresh{f.TransportCredentials.Clone(), f.files}
}

// read reads the files.
func (t *TLS) read() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		text, err := readfile.Credentials(t.CA)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", t.CA)
		}
	}
	if t.Cert == "" {
		return c, nil
	}
	cert, err := readfile.Credentials(t.Cert)
	if err != nil {
		return nil, err
	}
	key, err := readfile.Credentials(t.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", t.Cert, t.Key, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
