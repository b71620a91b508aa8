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
	"syscall"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/layer"
)

type serveCmd struct {
	Config    string            `env:"CONFIG" placeholder:"FILE"`
	Store     string            `env:"STORE" placeholder:"URL"`
	OnFailure onFailure         `env:"ON_FAILURE" placeholder:"POLICY"`
	Instances int               `env:"INSTANCES" placeholder:"N"`
	Limit     []ratelimit.Limit `env:"LIMIT" placeholder:"[NAME=]MAX/WINDOW"`
	InFlight  []ratelimit.Limit `env:"IN_FLIGHT" placeholder:"NAME=MAX/WINDOW"`
	Block     []blockFlag       `env:"BLOCK" placeholder:"NAME=LONGEST"`

	TopKeys      int  `env:"TOP_KEYS" placeholder:"N"`
	TopKeysPlain bool `env:"TOP_KEYS_PLAIN"`

	Addr      string     `env:"ADDR" default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	AdminAddr string     `env:"ADMIN_ADDR" placeholder:"HOST:PORT"`
	GRPCAddr  string     `name:"grpc-addr" env:"GRPC_ADDR" placeholder:"HOST:PORT"`
	Host      []hostFlag `env:"HOST" placeholder:"NAME"`

	ForwardAuth  profileFlag    `env:"FORWARD_AUTH" default:"caddy" placeholder:"PROXY"`
	Entry        []entryFlag    `env:"ENTRY" placeholder:"NAME=SOURCE"`
	TrustedProxy []netip.Prefix `env:"TRUSTED_PROXY" placeholder:"PREFIX"`

	TLS            tlsFlags      `embed:"" prefix:"tls-"`
	ReadTokenFile  string        `env:"READ_TOKEN_FILE" placeholder:"FILE"`
	WriteTokenFile string        `env:"WRITE_TOKEN_FILE" placeholder:"FILE"`
	Drain          time.Duration `env:"DRAIN" placeholder:"DURATION"`

	SettleWithinHold bool `env:"SETTLE_WITHIN_HOLD"`

	EnvoyCharge []chargeFlag `env:"ENVOY_CHARGE" default:"all" placeholder:"[DOMAIN=]HOW"`
	EnvoyLook   string       `env:"ENVOY_LOOK" default:"free" enum:"free,reached" placeholder:"HOW"`

	GRPCMaxConnectionAge time.Duration `env:"GRPC_MAX_CONNECTION_AGE" placeholder:"DURATION"`

	BreakerFailures int           `env:"BREAKER_FAILURES" default:"20" placeholder:"N"`
	BreakerPause    time.Duration `env:"BREAKER_PAUSE" default:"500ms" placeholder:"DURATION"`

	OTLP         bool    `name:"otlp" env:"OTLP"`
	LogDecisions float64 `env:"LOG_DECISIONS" default:"0" placeholder:"SHARE"`

	LogFormat string     `env:"LOG_FORMAT" default:"text" enum:"text,json" placeholder:"FORMAT"`
	LogLevel  slog.Level `env:"LOG_LEVEL" default:"info" placeholder:"LEVEL"`

	source config.Source
	loaded *config.Config // nil without files of limits
	envoy  envoy.Settings // of variables of envoyproxy/ratelimit
	unread []string       // such variables without a meaning here

	grpcTimeout time.Duration // of calls over gRPC, if it is not that of the store
	// anyHost has paths that are answered under all names: what replaces envoyproxy/ratelimit has
	// the names that it had.
	anyHost []string
}

// Validate is called by kong when it has parsed the command line.
func (c *serveCmd) Validate() error {
	if err := c.readConfig(); err != nil {
		return err
	}
	if err := c.checkTopKeys(); err != nil {
		return err
	}
	if err := checkEntries(c.Entry); err != nil {
		return err
	}
	if err := c.TLS.validate(); err != nil {
		return err
	}
	if c.SettleWithinHold && c.WriteTokenFile == "" {
		return errors.New("--settle-within-hold needs --write-token-file, whose tokens settle more")
	}
	if !(c.LogDecisions >= 0 && c.LogDecisions <= 1) {
		return fmt.Errorf("--log-decisions=%v is not between 0 and 1", c.LogDecisions)
	}
	for _, p := range c.TrustedProxy {
		if unmapped(p).Bits() <= 0 {
			return fmt.Errorf("--trusted-proxy=%v trusts everyone", p)
		}
	}
	switch {
	case c.Drain < 0:
		return fmt.Errorf("--drain=%v is negative", c.Drain)
	case !mayFail(c.Store):
		return c.checkGRPC()
	case c.OnFailure == "":
		return errNoPolicy
	case c.OnFailure == failLocal && c.Instances < 1:
		return c.errNoInstances()
	}
	return c.checkGRPC()
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, stderr io.Writer) error {
	log := c.logger(stderr)
	defer ignoreHangups()()
	secrets, err := c.newCredentials(ctx, log)
	if err != nil {
		return err
	}
	defer secrets.Close()
	store, err := backend.Open(ctx, c.Store)
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			log.Error("closing the store", "error", err)
		}
	}()
	readers, err := c.otlp(ctx, log)
	if err != nil {
		return err
	}
	counts, err := newMetrics(readers...)
	if err != nil {
		return err
	}
	defer func() { _ = counts.Close() }()
	var guarded *layer.Breaker
	if mayFail(c.Store) {
		if guarded, err = c.guard(store, log); err != nil {
			return err
		}
	}
	local, _ := store.Store.(*layer.Degraded)
	if err := counts.watch(store, guarded, local); err != nil {
		return err
	}
	top, err := c.newTopKeys(time.Now)
	if err != nil {
		return err
	}
	shown, err := c.newPage(store, guarded, top, &secrets.access, log)
	if err != nil {
		return err
	}
	defer shown.Close()
	handler, err := c.newLive(store, shown.and(top.and(decision.Takes(counts.Observe))), log,
		decision.WithShadowObserver(counts.observeShadow),
		decision.WithShadowObserver(shown.observeShadow), decision.WithWarnings(shown.Warn))
	if err != nil {
		return err
	}
	shown.live = handler
	handler.top, handler.auth = top, newForwardAuth(c.ForwardAuth, c.Entry, c.TrustedProxy, log)
	handler.auth.trusted.warn(log)
	if handler.hash, err = newHash(top); err != nil {
		return err
	}
	secrets.refused = handler.logRefusal
	handler.decisions = c.newDecisionLog(handler.decider, handler.hash, log)
	stopFollowing, err := handler.follow(ctx)
	if err != nil {
		return err
	}
	defer stopFollowing()
	if mayFail(c.Store) {
		if err := checkStore(ctx, store, log); err != nil {
			return err
		}
		if c.OnFailure == failClosed {
			handler.ready.probe = func(ctx context.Context) error {
				_, err := store.Probe(ctx)
				return err
			}
		}
	}
	if c.SettleWithinHold {
		handler.beyond = &secrets.access
	}
	if handler.envoy, err = c.newEnvoy(handler, log); err != nil {
		return err
	}
	if err := counts.watchService(handler, secrets); err != nil {
		return err
	}
	var stopWaits func()
	handler.ready.stop, stopWaits = context.WithCancel(context.WithoutCancel(ctx))
	defer stopWaits()
	handler.ready.onDrain = func() {
		stopWaits()
		handler.envoy.drain()
		shown.Close() // its open connections would last
	}
	names := newHosts(c.Host, c.Addr, c.AdminAddr)
	answered := handler.ready.release(secrets.only(shown.before(counts.before(handler))))
	answered = names.only(answered, append(c.anyHost, checkPath)...)
	bound := newBounds(log)
	servers, err := c.listen(answered, secrets.certificates, bound, log)
	if err != nil {
		return err
	}
	counts.watchServers(servers, c.BreakerPause)
	servers, err = c.listenGRPC(servers, handler.envoy, secrets.grpc, bound, &counts.failed)
	if err != nil {
		return err
	}
	if len(c.unread) > 0 {
		log.Warn("variables of envoyproxy/ratelimit have no meaning here", "names", c.unread)
	}
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.addr())
	}
	log.With(handler.inForce()...).Info("listening", "addr", addrs[0], "others", addrs[1:],
		"tls", c.TLS.Cert != "", "hosts", fmt.Sprint(c.Host), "store", store.Name,
		"on-failure", cmp.Or(string(c.OnFailure), "none"), "instances", c.Instances,
		"limits", handler.limits(), "in-flight", fmt.Sprint(c.InFlight),
		"blocks", fmt.Sprint(c.Block), "version", version())
	return serve(ctx, servers, &handler.ready, c.Drain, log)
}

// ignoreHangups keeps a SIGHUP from ending the process, also while nothing is loaded at one. The
// function that it returns ends that.
func ignoreHangups() (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return func() { signal.Stop(hangups) }
}

func (c *serveCmd) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
