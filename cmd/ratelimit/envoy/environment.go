package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/xds"
)

// Settings are what environment variables of envoyproxy/ratelimit say. A zero field is one of which
// none says anything.
type Settings struct {
	// Store is the URL of the store, password included; see
	// [github.com/truewindow/ratelimit/backend.Open]. Its timeout is REDIS_TIMEOUT, if that is
	// set.
	Store string

	HTTPAddr string // host:port of JSON
	// MetricsAddr is host:port of another address of the metrics, which have MetricsPath there.
	MetricsAddr, MetricsPath string
	GRPCAddr                 string    // host:port, or unix: and the path of a socket
	TLS                      *TLSFiles // of GRPCAddr
	LogLevel                 *slog.Level
	// LogFormat is text or json.
	LogFormat string

	Files *envoyfile.Runtime // nil with XDS, or if no variable names files
	XDS   *xds.Settings      // nil: the configuration is in Files
	// ForceStart starts also if there is no configuration yet, and waits for it. Calls are errors
	// until then.
	ForceStart bool
	// FileOptions have Merge, and Warn as NEAR_LIMIT_RATIO.
	FileOptions envoyfile.Options
	// Config has Shadow, the headers and DynamicMetadata.
	Config Config
	// ServerOptions have the ages of connections.
	ServerOptions ServerOptions
}

// TLSFiles are the paths of PEM files.
type TLSFiles struct {
	Cert, Key string
	ClientCA  string // of those who sign certificates of clients; empty: clients need none
}

// ReadEnvironment reads the variables of envoyproxy/ratelimit in an environment, as os.Environ
// returns it. Newlines at the end of a value are left out. ignored are the names of those that are
// set, not to false or 0, and have no meaning here, sorted. The error names each variable that is
// wrong, and no value.
func ReadEnvironment(environ []string) (s Settings, ignored []string, err error) {
	values := make(map[string]string)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		value = strings.TrimRight(value, "\r\n") // as files of secrets have at their end
		values[name] = value
		if value != "" && !isOff(value) && slices.Contains(meaningless, name) {
			ignored = append(ignored, name)
		}
	}
	e := environment{runtime: defaultRuntime}
	var wrong []error
	for _, v := range e.variables() {
		if value := values[v.name]; value != "" { // an empty one counts as not set
			if err := v.UnmarshalText([]byte(value)); err != nil {
				wrong = append(wrong, fmt.Errorf("%s %w", v.name, err))
			}
			if strings.HasPrefix(v.name, "RUNTIME_") || v.name == "CONFIG_TYPE" {
				e.Files = &e.runtime
			}
		}
	}
	wrong = append(wrong, e.finish())
	slices.Sort(ignored)
	return e.Settings, slices.Compact(ignored), errors.Join(wrong...)
}

// isOff reports whether a value turns something off.
func isOff(value string) bool {
	on, err := strconv.ParseBool(value)
	return err == nil && !on
}

// An environment collects what variables say.
type environment struct {
	Settings
	host, port, grpcHost, grpcPort, grpcSocket string

	useTLS bool
	tls    TLSFiles

	inResponse, inRequest bool
	response, request     Headers

	redis   redis
	runtime envoyfile.Runtime

	byXDS  bool
	xdsTLS bool
	xds    xds.Settings
	files  xds.TLS

	prometheus                     bool
	prometheusAddr, prometheusPath string
}

// defaultRuntime is where the files of envoyproxy/ratelimit are by default.
var defaultRuntime = envoyfile.Runtime{
	Root: "/srv/runtime_data/current", AppDirectory: "config", WatchRoot: true,
}

// finish sets what several variables say together.
func (e *environment) finish() error {
	if e.host != "" || e.port != "" {
		e.HTTPAddr = net.JoinHostPort(cmp.Or(e.host, "0.0.0.0"), cmp.Or(e.port, "8080"))
	}
	switch {
	case e.grpcSocket != "":
		e.GRPCAddr = "unix:" + e.grpcSocket
	case e.grpcHost != "" || e.grpcPort != "":
		e.GRPCAddr = net.JoinHostPort(cmp.Or(e.grpcHost, "0.0.0.0"), cmp.Or(e.grpcPort, "8081"))
	}
	if e.inResponse {
		e.Config.ResponseHeaders = e.response.orDefault()
	}
	if e.inRequest {
		e.Config.RequestHeaders = e.request.orDefault()
	}
	var errTLS error
	if e.useTLS {
		e.TLS = &e.tls
		if e.tls.Cert == "" || e.tls.Key == "" {
			errTLS = errors.New("GRPC_SERVER_USE_TLS needs GRPC_SERVER_TLS_CERT and " +
				"GRPC_SERVER_TLS_KEY")
		}
	}
	var errXDS error
	if e.byXDS {
		e.Files, e.XDS = nil, &e.xds
		errXDS = e.finishXDS()
	}
	if e.prometheus {
		e.MetricsAddr = cmp.Or(e.prometheusAddr, ":9090")
		e.MetricsPath = "/" + cmp.Or(strings.TrimPrefix(e.prometheusPath, "/"), "metrics")
	}
	var errStore error
	e.Store, errStore = e.redis.store()
	return errors.Join(errTLS, errXDS, e.Config.ResponseHeaders.check(),
		e.Config.RequestHeaders.check(), errStore)
}

func (e *environment) finishXDS() error {
	e.xds.Server = cmp.Or(e.xds.Server, "localhost:18000")
	e.xds.Node = cmp.Or(e.xds.Node, "default")
	if !e.xdsTLS {
		return nil
	}
	e.xds.TLS = &e.files
	if (e.files.Cert == "") != (e.files.Key == "") {
		return errors.New("CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY " +
			"need each other")
	}
	return nil
}

func (h Headers) orDefault() *Headers {
	d := DefaultHeaders()
	return &Headers{
		cmp.Or(h.Limit, d.Limit), cmp.Or(h.Remaining, d.Remaining), cmp.Or(h.Reset, d.Reset),
	}
}
