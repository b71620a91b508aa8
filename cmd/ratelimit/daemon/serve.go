// Package daemon is the process of "ratelimit serve": it opens the store, loads the limits,
// listens, and ends. Package httpapi answers its requests over HTTP, and package envoy those over
// gRPC.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/internal/version"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/shadow"
	"github.com/truewindow/ratelimit/topkeys"
)

// Serve is "ratelimit serve": its flags, and what Validate reads of files and variables.
type Serve struct {
	Config    string    `env:"CONFIG" placeholder:"FILE"`
	Store     string    `env:"STORE" placeholder:"URL"`
	OnFailure onFailure `env:"ON_FAILURE" placeholder:"POLICY"`
	Instances int       `env:"INSTANCES" placeholder:"N"`
	Lease     leaseFlag `env:"LEASE" placeholder:"SHARE"`

	KeySecretFile string `env:"KEY_SECRET_FILE" placeholder:"FILE"`
	config.Flags

	TopKeys      int  `env:"TOP_KEYS" placeholder:"N"`
	TopKeysPlain bool `env:"TOP_KEYS_PLAIN"`

	Addr      string             `env:"ADDR" placeholder:"HOST:PORT"`
	AdminAddr string             `env:"ADMIN_ADDR" placeholder:"HOST:PORT"`
	GRPCAddr  string             `name:"grpc-addr" env:"GRPC_ADDR" placeholder:"HOST:PORT"`
	Host      []httpapi.HostFlag `env:"HOST" placeholder:"NAME"`

	ForwardAuth  httpapi.ProfileFlag `env:"FORWARD_AUTH" default:"caddy" placeholder:"PROXY"`
	Entry        []httpapi.EntryFlag `env:"ENTRY" placeholder:"NAME=SOURCE"`
	TrustedProxy []netip.Prefix      `env:"TRUSTED_PROXY" placeholder:"PREFIX"`

	TLS            TLSFlags      `embed:"" prefix:"tls-"`
	ReadTokenFile  string        `env:"READ_TOKEN_FILE" placeholder:"FILE"`
	WriteTokenFile string        `env:"WRITE_TOKEN_FILE" placeholder:"FILE"`
	AccessFile     string        `env:"ACCESS_FILE" placeholder:"FILE"`
	Drain          time.Duration `env:"DRAIN" placeholder:"DURATION"`

	SettleWithinHold bool `env:"SETTLE_WITHIN_HOLD"`
	AuditFlags

	EnvoyCharge []chargeFlag `env:"ENVOY_CHARGE" default:"all" placeholder:"[DOMAIN=]HOW"`
	EnvoyLook   string       `env:"ENVOY_LOOK" default:"free" enum:"free,reached" placeholder:"HOW"`

	GRPCMaxConnectionAge time.Duration `env:"GRPC_MAX_CONNECTION_AGE" placeholder:"DURATION"`

	RetryJitter float64 `env:"RETRY_JITTER" default:"0" placeholder:"SHARE"`

	BreakerFailures int           `env:"BREAKER_FAILURES" default:"20" placeholder:"N"`
	BreakerPause    time.Duration `env:"BREAKER_PAUSE" default:"500ms" placeholder:"DURATION"`

	OTLP         bool    `name:"otlp" env:"OTLP"`
	LogDecisions float64 `env:"LOG_DECISIONS" default:"0" placeholder:"SHARE"`

	LogFormat string      `env:"LOG_FORMAT" default:"" enum:",text,json" placeholder:"FORMAT"`
	LogLevel  *slog.Level `env:"LOG_LEVEL" placeholder:"LEVEL"` // nil: info

	Stdout io.Writer `kong:"-"` // of --audit=-; nil: that of the process

	source config.Source
	loaded *config.Config // nil without files of limits
	secret []byte         // of keys; nil if the store has the keys themselves
	envoy  envoy.Settings // of variables of envoyproxy/ratelimit
	unread []string       // such variables without a meaning here

	grpcTimeout time.Duration // of calls over gRPC, if it is not that of the store
	// anyHost has paths that are answered under all names: what replaces envoyproxy/ratelimit has
	// the names that it had.
	anyHost []string
}

// Validate is called by kong when it has parsed the command line. It reads the files of limits, and
// sets what they and the variables of envoyproxy/ratelimit say.
func (c *Serve) Validate() error {
	if err := c.readConfig(); err != nil {
		return err
	}
	c.Addr = cmp.Or(c.Addr, defaultAddr)
	if err := c.checkTopKeys(); err != nil {
		return err
	}
	if err := httpapi.CheckEntries(c.Entry); err != nil {
		return err
	}
	if err := c.TLS.Validate(); err != nil {
		return err
	}
	if c.SettleWithinHold && c.WriteTokenFile == "" && c.AccessFile == "" {
		return errors.New("--settle-within-hold needs --write-token-file or --access-file, whose " +
			"tokens settle more")
	}
	if err := c.AuditFlags.Validate(); err != nil {
		return err
	}
	if !(c.LogDecisions >= 0 && c.LogDecisions <= 1) {
		return fmt.Errorf("--log-decisions=%v is not between 0 and 1", c.LogDecisions)
	}
	if !edge.ValidJitter(c.RetryJitter) {
		return fmt.Errorf("--retry-jitter=%v is not between 0 and 1", c.RetryJitter)
	}
	if err := httpapi.CheckTrustedProxies(c.TrustedProxy); err != nil {
		return err
	}
	switch {
	case c.Drain < 0:
		return fmt.Errorf("--drain=%v is negative", c.Drain)
	case !mayFail(c.Store) && c.Lease > 0:
		return errNoLease
	case !mayFail(c.Store):
		return c.prepareGRPC()
	case c.OnFailure == "":
		return errNoPolicy
	case c.OnFailure == failLocal && c.Instances < 1:
		return c.errNoInstances()
	}
	return c.prepareGRPC()
}

var errPlain = errors.New("--top-keys-plain needs --top-keys=N")

func (c *Serve) checkTopKeys() error {
	switch {
	case c.TopKeys < 0 || c.TopKeys > topkeys.MaxSize:
		return fmt.Errorf("--top-keys=%d is not between 0 and %d", c.TopKeys, topkeys.MaxSize)
	case c.TopKeys == 0 && c.TopKeysPlain:
		return errPlain
	}
	return nil
}

// Run serves until ctx ends.
func (c *Serve) Run(ctx context.Context, stderr io.Writer) error {
	log := c.logger(stderr)
	defer ignoreHangups()()
	credentials, err := c.newCredentials(ctx, log)
	if err != nil {
		return err
	}
	defer credentials.Close()
	store, err := c.openStore(ctx, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			log.Error("closing the store", "error", err)
		}
	}()

	counts, err := c.newMetrics(ctx, store, log)
	if err != nil {
		return err
	}
	defer func() { _ = counts.Close() }()
	top, err := httpapi.NewTopKeys(c.TopKeys, c.TopKeysPlain, time.Now)
	if err != nil {
		return err
	}
	hash, err := newHash(top)
	if err != nil {
		return err
	}
	trail, err := c.openAudit(ctx, c.Stdout, hash, log)
	if err != nil {
		return err
	}
	defer trail.Close()
	// Set below: the page asks for them only when it is served.
	var inForce *limits
	var writes *httpapi.AuditLog
	page, err := c.newPage(store, top, &credentials.Table,
		func() *httpapi.AuditLog { return writes }, func() *limits { return inForce }, log)
	if err != nil {
		return err
	}
	defer page.Close()

	decider := c.newDecider(store.Store.Store, top, c.logDecisions(hash, log),
		decision.WithObserver(decision.Takes(counts.Observe)),
		decision.WithObserver(page.Observe), decision.WithWarnings(page.Warn),
		decision.WithShadowObserver(asShadow(counts.ObserveShadow)),
		decision.WithShadowObserver(asShadow(page.ObserveShadow)))
	inForce, err = c.followLimits(ctx, decider, store.leases, trail.Trail, log)
	switch {
	case err != nil && ctx.Err() != nil: // it was to end while it waited for a first configuration
		return nil
	case err != nil:
		return err
	}
	defer inForce.Close()
	probe, err := c.checkStore(ctx, store, log)
	if err != nil {
		return err
	}
	ready := httpapi.NewReadiness(probe)
	defer ready.Drain()
	context.AfterFunc(ready.Draining(), page.Close) // its open connections would last

	writes = httpapi.NewAuditLog(trail.Trail, decider)
	allowed := httpapi.NewAccess(&credentials.Table, writes)
	envoy, err := c.newEnvoy(inForce, &credentials.Table, trail.Trail, log)
	if err != nil {
		return err
	}
	proxies := httpapi.NewForwardAuth(c.ForwardAuth, c.Entry, c.TrustedProxy, log)
	answers := httpapi.New(httpapi.Options{
		Decider: decider, Config: inForce.config.Load, Log: log, Audit: trail.Trail,
		Proxies: proxies, Ready: ready, Top: top, Envoy: envoyJSON(envoy),
		SettleWithin: c.SettleWithinHold, RetryJitter: c.RetryJitter})
	handler := httpapi.NewHosts(c.Host, c.Addr, c.AdminAddr).Only(
		ready.CloseWhileDraining(allowed.Only(page.before(counts.before(answers)))),
		func(path string) bool { return proxies.IsCheck(path) || slices.Contains(c.anyHost, path) })

	failed := new(failedConnections)
	err = counts.watchService(&serviceReader{limits: inForce, credentials: credentials,
		proxies: proxies, envoy: envoy, failed: failed, trail: trail})
	if err != nil {
		return err
	}
	open := listeners{cmd: c, credentials: credentials, counts: counts, failed: failed,
		ready: ready, bounds: newBounds(log), log: log}
	servers, err := open.all(handler, envoy)
	if err != nil {
		return err
	}
	c.logStart(servers, store.Name, inForce, log)
	return serve(ctx, servers, ready, c.Drain, log)
}

// newDecider returns what decides, with the observers of options and top, which may be nil.
func (c *Serve) newDecider(
	store ratelimit.Store, top *httpapi.TopKeys, options ...decision.Option,
) *decision.Decider {
	options = append(options, decision.WithPolicy(c.OnFailure.policy()))
	if top != nil {
		options = append(options, decision.WithObserver(top.Observe),
			decision.WithShadowObserver(top.Observe))
	}
	return decision.New(store, options...)
}

// asShadow returns an observer of limits in shadow mode, which decide only calls that the others
// admit.
func asShadow(
	observe func(context.Context, shadow.Observation),
) func(context.Context, ratelimit.Observation) {
	return func(ctx context.Context, o ratelimit.Observation) {
		observe(ctx, shadow.Observation{
			Observation: o, Live: []ratelimit.Result{{Allowed: true}}})
	}
}

// logStart logs on what addresses and under which limits the service answers.
func (c *Serve) logStart(servers []server, store string, l *limits, log *slog.Logger) {
	if len(c.unread) > 0 {
		log.Warn("variables of envoyproxy/ratelimit have no meaning here", "names", c.unread)
	}
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.addr())
	}
	log.With(l.attrs()...).Info("listening", "addr", addrs[0], "others", addrs[1:],
		"tls", c.TLS.Cert != "", "hosts", fmt.Sprint(c.Host), "store", store,
		"on-failure", cmp.Or(string(c.OnFailure), "none"), "instances", c.Instances,
		"limits", l.String(), "in-flight", fmt.Sprint(c.InFlight),
		"blocks", fmt.Sprint(c.Block), "version", version.String())
}

// ignoreHangups keeps a SIGHUP from ending the process, also while nothing is loaded at one. The
// function that it returns ends that.
func ignoreHangups() (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return func() { signal.Stop(hangups) }
}

func (c *Serve) logger(w io.Writer) *slog.Logger {
	opts := new(slog.HandlerOptions)
	if c.LogLevel != nil {
		opts.Level = *c.LogLevel
	}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
