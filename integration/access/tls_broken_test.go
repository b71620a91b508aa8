package access

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestTLSBrokenRecord: if an answer on an established TLS connection is not a TLS record, the
// outcome is unknown, because the server has run the script. A tls.RecordHeaderError during the
// handshake is different: nothing was sent.
func TestTLSBrokenRecord(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	server := startTLSServer(t, servers.Newest(), ours, "")
	clients.Each(t, func(t *testing.T, lib clients.Library) {
		d := clients.Dialing{Addrs: []string{server.Addr}, TLS: ours.trusted()}
		calm := lib.Client(t, d).NewStore(t, &serverstore.Options{Timeout: clients.Patient})
		var s spoiler
		// one connection, opened before it is spoiled
		d.TLS, d.Dial, d.Multiplex = nil, s.dialer(ours.trusted()), -1
		faulty := lib.Client(t, d).NewStore(t, &serverstore.Options{Timeout: clients.Patient})
		for range 4 {
			// connected
			if res, err := faulty.Take(t.Context(),
				clients.Take(servers.FreshKey(t))); err != nil || !res.Allowed {
				t.Fatalf("got %+v, %v; want an admission", res, err)
			}
			key := servers.FreshKey(t)
			s.on.Store(true)
			_, err := faulty.Take(t.Context(), clients.Take(key))
			s.on.Store(false)
			var broken tls.RecordHeaderError
			if !errors.As(err, &broken) || !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
				t.Errorf("%v, want ErrOutcomeUnknown for a broken record", err)
			}
			if n := clients.Recorded(t, calm, key); n != 1 {
				t.Errorf("%d units recorded, want 1", n)
			}
		}
	})
}

// spoiler corrupts what the server sends while it is on.
type spoiler struct{ on atomic.Bool }

func (s *spoiler) dialer(config *tls.Config) clients.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(&spoiledConn{Conn: conn, spoiler: s}, config)
		return secured, secured.HandshakeContext(ctx)
	}
}

type spoiledConn struct {
	net.Conn
	spoiler *spoiler
}

func (c *spoiledConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.spoiler.on.Load() {
		for i := range b[:n] {
			b[i] = 'x'
		}
	}
	return n, err
}
