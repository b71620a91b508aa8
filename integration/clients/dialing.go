package clients

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit/integration/servers"
)

// A Dialing describes how a client connects to servers.
type Dialing struct {
	Addrs              []string
	Cluster            bool
	Username, Password string
	TLS                *tls.Config // nil: none
	Dial               DialFunc    // nil: the library's own
	Style              Style       // of piped libraries
	MasterSet          string      // at Sentinels, the name of the monitored pair; else empty
	Patient            bool        // long timeouts for piped libraries, for a busy machine
	Prompt             bool        // use the settings that the stores' packages recommend
	RESP2              bool        // the older protocol; then no library tracks keys

	// Multiplex sets the number of connections of a piped library to a server, as a power of two: 0
	// is the library's default, -1 is one connection.
	Multiplex int
}

// DialFunc opens a connection.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// A Style is a way in which a piped library sends commands.
type Style struct {
	Name             string
	always, disabled bool // AlwaysPipelining, DisableAutoPipelining
}

// Styles are the ways that tests try.
var Styles = []Style{
	{Name: "default"},
	{Name: "pipelined", always: true},
	{Name: "pooled", disabled: true},
}

// PromptTimeout is the timeout of clients that the stores' packages recommend.
const PromptTimeout = 500 * time.Millisecond

// promptRefresh is how often clients ask Sentinels, as the stores' packages recommend.
const promptRefresh = 5 * time.Second

var promptDialer = net.Dialer{KeepAlive: 200 * time.Millisecond, Timeout: PromptTimeout}

func (d Dialing) rueidis(
	ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config,
) (net.Conn, error) {
	return d.Dial(ctx, "tcp", addr)
}

// RueidisOption returns d as options of rueidis.
func (d Dialing) RueidisOption() rueidis.ClientOption {
	opts := rueidis.ClientOption{
		InitAddress: d.Addrs, ForceSingleClient: !d.Cluster && d.MasterSet == "",
		Username: d.Username, Password: d.Password, TLSConfig: d.TLS,
		AlwaysPipelining: d.Style.always, DisableAutoPipelining: d.Style.disabled,
		PipelineMultiplex: d.Multiplex, AlwaysRESP2: d.RESP2, DisableCache: d.RESP2,
	}
	if d.Dial != nil {
		opts.DialCtxFn = d.rueidis
	}
	if opts.Sentinel.MasterSet = d.MasterSet; d.Prompt {
		opts.Dialer, opts.Sentinel.Dialer, opts.ConnWriteTimeout = promptDialer, promptDialer,
			PromptTimeout
		opts.Sentinel.TopologyRefreshInterval = promptRefresh
	}
	if d.Patient {
		opts.Dialer, opts.ConnWriteTimeout = net.Dialer{Timeout: Patient, KeepAlive: Patient},
			Patient
	}
	return opts
}

// ValkeyOption returns d as options of valkey-go.
func (d Dialing) ValkeyOption() valkey.ClientOption {
	opts := valkey.ClientOption{
		InitAddress: d.Addrs, ForceSingleClient: !d.Cluster && d.MasterSet == "",
		Username: d.Username, Password: d.Password, TLSConfig: d.TLS,
		AlwaysPipelining: d.Style.always, DisableAutoPipelining: d.Style.disabled,
		PipelineMultiplex: d.Multiplex, AlwaysRESP2: d.RESP2, DisableCache: d.RESP2,
	}
	if d.Dial != nil {
		opts.DialCtxFn = d.rueidis
	}
	if opts.Sentinel.MasterSet = d.MasterSet; d.Prompt {
		opts.Dialer, opts.Sentinel.Dialer, opts.ConnWriteTimeout = promptDialer, promptDialer,
			PromptTimeout
		opts.Sentinel.TopologyRefreshInterval = promptRefresh
	}
	if d.Patient {
		opts.Dialer, opts.ConnWriteTimeout = net.Dialer{Timeout: Patient, KeepAlive: Patient},
			Patient
	}
	return opts
}

// To returns the Dialing of tgt.
func To(tgt *servers.Target) Dialing { return Dialing{Addrs: tgt.Addrs, Cluster: tgt.Cluster} }

// Patient is the timeout of stores in tests that check decisions and not their latency: long enough
// for a busy machine.
const Patient = 10 * time.Second
