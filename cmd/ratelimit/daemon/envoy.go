package daemon

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
)

// Addresses that are used if no flag and no variable has another. Those with variables of
// envoyproxy/ratelimit are its own.
const (
	defaultAddr      = "127.0.0.1:8080"
	defaultHTTPEnvoy = "0.0.0.0:8080"
	defaultGRPCEnvoy = "0.0.0.0:8081"
)

// HasEnvoyVariables reports whether the environment says where envoyproxy/ratelimit has its
// configuration.
func HasEnvoyVariables() bool {
	for _, name := range []string{
		"CONFIG_TYPE", "RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// errNoRedis ends a start for which envoyproxy/ratelimit would look for a server too. Replicas with
// a memory each would admit the limits several times.
var errNoRedis = errors.New("REDIS_URL is not set: set it to the server of the limits, such as " +
	"redis:6379, or set RATELIMIT_STORE=memory, with which each process has limits of its own")

// readEnvoyVariables takes the settings of variables of envoyproxy/ratelimit, if they name its
// files and no flag names limits. Flags override them.
func (c *Serve) readEnvoyVariables() (err error) {
	if c.Config != "" || c.HasLimits() || !HasEnvoyVariables() {
		return nil
	}
	if c.envoy, c.unread, err = envoy.ReadEnvironment(os.Environ()); err != nil {
		return err
	}
	c.source = config.Source{Runtime: c.envoy.Files, XDS: c.envoy.XDS,
		Options: c.envoy.FileOptions}
	if c.Store = cmp.Or(c.Store, c.envoy.Store); c.Store == "" {
		return errNoRedis
	}
	c.OnFailure = cmp.Or(c.OnFailure, failClosed) // Envoy's failure_mode_deny decides then
	c.Addr = cmp.Or(c.Addr, c.envoy.HTTPAddr, defaultHTTPEnvoy)
	c.GRPCAddr = cmp.Or(c.GRPCAddr, c.envoy.GRPCAddr, defaultGRPCEnvoy)
	c.anyHost = []string{"/json", "/healthcheck"}
	c.LogLevel = cmp.Or(c.LogLevel, c.envoy.LogLevel)
	c.LogFormat = cmp.Or(c.LogFormat, c.envoy.LogFormat)
	return nil
}

// A chargeFlag is a value of --envoy-charge. Without a domain it is that of all others.
type chargeFlag struct {
	domain string
	how    envoy.Charge
}

func (f *chargeFlag) UnmarshalText(text []byte) error {
	i := bytes.LastIndexByte(text, '=')
	if i == 0 {
		return errors.New("the domain before = is empty")
	}
	f.domain = string(text[:max(i, 0)])
	return f.how.UnmarshalText(text[i+1:])
}

// charges returns what the values of --envoy-charge say.
func charges(flags []chargeFlag) (other envoy.Charge, of map[string]envoy.Charge, err error) {
	of = make(map[string]envoy.Charge)
	for _, f := range flags {
		if _, twice := of[f.domain]; twice {
			return "", nil, fmt.Errorf("--envoy-charge is given twice for the domain %q", f.domain)
		}
		of[f.domain] = f.how
	}
	other = cmp.Or(of[""], envoy.ChargeAll)
	delete(of, "")
	return other, of, nil
}

// prepareGRPC gives calls over gRPC to a store on a server a timeout that fits into Envoy's, unless
// the store has one.
func (c *Serve) prepareGRPC() error {
	charge, of, err := charges(c.EnvoyCharge)
	c.envoy.Config.Charge, c.envoy.Config.ChargeOf = charge, of
	switch {
	case err != nil:
		return err
	case c.GRPCAddr == "" && (charge != envoy.ChargeAll || len(of) > 0 || c.EnvoyLook != "free"):
		return errors.New("--envoy-charge and --envoy-look need --grpc-addr")
	case c.GRPCAddr == "" && c.GRPCMaxConnectionAge != 0:
		return errors.New("--grpc-max-connection-age needs --grpc-addr")
	case c.GRPCMaxConnectionAge < 0:
		return fmt.Errorf("--grpc-max-connection-age=%v is negative", c.GRPCMaxConnectionAge)
	case c.GRPCAddr == "" || !mayFail(c.Store):
		return nil
	}
	_, query, _ := strings.Cut(c.Store, "?")
	if values, err := url.ParseQuery(query); err == nil && !values.Has("timeout") {
		c.grpcTimeout = envoy.StoreTimeout // else the store is wrong, or has a timeout
	}
	return nil
}

// newEnvoy returns what answers Envoy, or nil without --grpc-addr.
func (c *Serve) newEnvoy(
	l *limits, allowed *access.Table, writes *audit.Trail, log *slog.Logger,
) (*envoy.Service, error) {
	if c.GRPCAddr == "" {
		return nil, nil
	}
	settings := c.envoy.Config
	settings.Decider, settings.Domains, settings.Log = l.decider, l.domains, log
	settings.Reached = c.EnvoyLook == "reached"
	settings.Access, settings.SettleWithin, settings.Audit = allowed, c.SettleWithinHold, writes
	return envoy.New(settings)
}

// envoyJSON returns what answers the calls of s over HTTP, or nil without s.
func envoyJSON(s *envoy.Service) http.Handler {
	if s == nil {
		return nil
	}
	return s.JSON()
}
