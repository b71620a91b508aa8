package envoy

import (
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/xds"
)

// runtimeOf returns the files of envoyproxy/ratelimit without settings, with a change.
func runtimeOf(change func(*envoyfile.Runtime)) Settings {
	r := envoyfile.Runtime{
		Root: "/srv/runtime_data/current", AppDirectory: "config", WatchRoot: true,
	}
	change(&r)
	return Settings{Files: &r}
}

// xdsOf returns the settings of byXDS, with a change.
func xdsOf(change func(*xds.Settings)) Settings {
	s := &xds.Settings{Server: "localhost:18000", Node: "default"}
	change(s)
	return Settings{XDS: s}
}

func levelOf(l slog.Level) Settings { return Settings{LogLevel: &l} }

func storeOf(url string) Settings { return Settings{Store: url} }

const (
	someTLS   = "GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k"
	response  = "LIMIT_RESPONSE_HEADERS_ENABLED=true"
	toRequest = "LIMIT_REQUEST_HEADERS_ENABLED=true"
	xdsVar    = "CONFIG_GRPC_XDS_"
	// Errors of REDIS_URL.
	notHostPort     = "REDIS_URL has an address that is not host:port"
	neitherHostPort = "REDIS_URL has an address that is neither host:port nor"

	byXDS  = "CONFIG_TYPE=GRPC_XDS_SOTW"
	server = "REDIS_SOCKET_TYPE=tcp REDIS_URL=db:6379"
)

// environments has at least one row for each variable. Variables are separated by spaces.
var environments = []struct {
	environ string
	want    Settings
}{
	{"", Settings{}},
	{"HOST=127.0.0.1", Settings{HTTPAddr: "127.0.0.1:8080"}},
	{"PORT=80", Settings{HTTPAddr: "0.0.0.0:80"}},
	{"HOST=::1 PORT=80", Settings{HTTPAddr: "[::1]:80"}},
	{"GRPC_HOST=127.0.0.1", Settings{GRPCAddr: "127.0.0.1:8081"}},
	{"GRPC_PORT=81", Settings{GRPCAddr: "0.0.0.0:81"}},
	{"GRPC_UDS=/run/rl.sock GRPC_PORT=81", Settings{GRPCAddr: "unix:/run/rl.sock"}},
	{"GRPC_MAX_CONNECTION_AGE=30m",
		Settings{ServerOptions: ServerOptions{MaxConnectionAge: 30 * time.Minute}}},
	{"GRPC_MAX_CONNECTION_AGE_GRACE=5s",
		Settings{ServerOptions: ServerOptions{MaxConnectionAgeGrace: 5 * time.Second}}},
	{"GRPC_SERVER_USE_TLS=false GRPC_SERVER_TLS_CERT=c", Settings{}},
	{someTLS, Settings{TLS: &TLSFiles{Cert: "c", Key: "k"}}},
	{someTLS + " GRPC_CLIENT_TLS_CACERT=ca",
		Settings{TLS: &TLSFiles{Cert: "c", Key: "k", ClientCA: "ca"}}},
	{"GRPC_CLIENT_TLS_SAN=", Settings{}},
	{"LOG_LEVEL=WARN", levelOf(slog.LevelWarn)},
	{"LOG_LEVEL=trace", levelOf(slog.LevelDebug)},
	{"LOG_FORMAT=JSON", Settings{LogFormat: "json"}},

	{"CONFIG_TYPE=FILE", runtimeOf(func(*envoyfile.Runtime) {})},
	{byXDS, xdsOf(func(*xds.Settings) {})},
	{byXDS + " RUNTIME_ROOT=/data", xdsOf(func(*xds.Settings) {})},
	{"CONFIG_GRPC_XDS_SERVER_URL=gateway:18001", Settings{}},
	{byXDS + " CONFIG_GRPC_XDS_SERVER_URL=gateway:18001 CONFIG_GRPC_XDS_NODE_ID=me" +
		" CONFIG_GRPC_XDS_NODE_METADATA=a=b,c=d=e" +
		" CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=x-a:b,x-c:d:e" +
		" CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=1s" +
		" XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=2s XDS_CLIENT_BACKOFF_MAX_INTERVAL=3s" +
		" XDS_CLIENT_BACKOFF_JITTER=false XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=4",
		Settings{XDS: &xds.Settings{Server: "gateway:18001", Node: "me",
			Metadata: map[string]string{"a": "b", "c": "d=e"},
			Headers:  map[string]string{"x-a": "b", "x-c": "d:e"}, Connect: time.Second,
			First: 2 * time.Second, Longest: 3 * time.Second, NoJitter: true, MaxMessage: 4}}},
	{byXDS + " XDS_CLIENT_BACKOFF_JITTER=true", xdsOf(func(*xds.Settings) {})},
	{byXDS + " CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c CONFIG_GRPC_XDS_SERVER_USE_TLS=false",
		xdsOf(func(*xds.Settings) {})},
	{byXDS + " CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
		xdsOf(func(s *xds.Settings) { s.TLS = new(xds.TLS) })},
	{byXDS + " CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c" +
		" CONFIG_GRPC_XDS_CLIENT_TLS_KEY=k CONFIG_GRPC_XDS_SERVER_TLS_CACERT=ca" +
		" CONFIG_GRPC_XDS_SERVER_TLS_SAN=name", xdsOf(func(s *xds.Settings) {
		s.TLS = &xds.TLS{Cert: "c", Key: "k", CA: "ca", ServerName: "name"}
	})},
	{"RUNTIME_ROOT=/etc", runtimeOf(func(r *envoyfile.Runtime) { r.Root = "/etc" })},
	{"RUNTIME_SUBDIRECTORY=s", runtimeOf(func(r *envoyfile.Runtime) { r.Subdirectory = "s" })},
	{"RUNTIME_APPDIRECTORY=a", runtimeOf(func(r *envoyfile.Runtime) { r.AppDirectory = "a" })},
	{"RUNTIME_IGNOREDOTFILES=true",
		runtimeOf(func(r *envoyfile.Runtime) { r.IgnoreDotFiles = true })},
	{"RUNTIME_WATCH_ROOT=false", runtimeOf(func(r *envoyfile.Runtime) { r.WatchRoot = false })},
	{"MERGE_DOMAIN_CONFIG=true", Settings{FileOptions: envoyfile.Options{Merge: true}}},
	{"NEAR_LIMIT_RATIO=0.9", Settings{FileOptions: envoyfile.Options{Warn: 0.9}}},

	{"SHADOW_MODE=1", Settings{Config: Config{Shadow: true}}},
	{"QUOTA_MODE=false", Settings{}},
	{"RESPONSE_DYNAMIC_METADATA=true", Settings{Config: Config{DynamicMetadata: true}}},
	{"LIMIT_LIMIT_HEADER=a", Settings{}},
	{response, Settings{Config: Config{ResponseHeaders: &Headers{
		"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}}}},
	{response + " LIMIT_LIMIT_HEADER=a LIMIT_REMAINING_HEADER=b LIMIT_RESET_HEADER=c",
		Settings{Config: Config{ResponseHeaders: &Headers{"a", "b", "c"}}}},
	{toRequest + " LIMIT_REQUEST_LIMIT_HEADER=a LIMIT_REQUEST_REMAINING_HEADER=b",
		Settings{Config: Config{RequestHeaders: &Headers{"a", "b", "RateLimit-Reset"}}}},
	{toRequest + " LIMIT_REQUEST_RESET_HEADER=c", Settings{Config: Config{
		RequestHeaders: &Headers{"RateLimit-Limit", "RateLimit-Remaining", "c"}}}},

	{"USE_PROMETHEUS=true", Settings{MetricsAddr: ":9090", MetricsPath: "/metrics"}},
	{"USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001 PROMETHEUS_PATH=/m",
		Settings{MetricsAddr: ":19001", MetricsPath: "/m"}},
	{"USE_PROMETHEUS=true PROMETHEUS_PATH=m", Settings{MetricsAddr: ":9090", MetricsPath: "/m"}},
	{"PROMETHEUS_ADDR=:19001", Settings{}},

	{"BACKEND_TYPE=redis", Settings{}},
	{"REDIS_SOCKET_TYPE=tcp", Settings{}},
	{"REDIS_TLS=false", Settings{}},
	{server, storeOf("redis://db:6379")},
	{server + " REDIS_TYPE=single REDIS_TIMEOUT=1s", storeOf("redis://db:6379?timeout=1s")},
	{server + " REDIS_AUTH=p@/+#", storeOf("redis://:p%40%2F%2B%23@db:6379")},
	{server + " REDIS_AUTH=me:a:b", storeOf("redis://me:a%3Ab@db:6379")},
	{server + " CACHE_KEY_PREFIX=a&b", storeOf("redis://db:6379?prefix=a%26b")},
	{server + " REDIS_TLS=true", storeOf("rediss://db:6379")},
	{server + " REDIS_TLS=true REDIS_TLS_CACERT=/ca" +
		" REDIS_TLS_CLIENT_CERT=/c REDIS_TLS_CLIENT_KEY=/k",
		storeOf("rediss://db:6379?tls-ca=%2Fca&tls-cert=%2Fc&tls-key=%2Fk")},
	{server + " REDIS_TLS=true REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true",
		storeOf("rediss://db:6379?tls-skip-hostname=true")},
	{server + " REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", storeOf("redis://db:6379")},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG=true", Settings{ForceStart: true}},
	{"REDIS_URL=redis://me:secret@db:6379/2",
		storeOf("redis://me:secret@db:6379/2")},
	{"REDIS_URL=rediss://me:secret@db:6379 REDIS_AUTH=other",
		storeOf("rediss://:other@db:6379")},
	{"REDIS_TYPE=CLUSTER REDIS_URL=a:1,redis://:secret@b:2",
		storeOf("redis+cluster://:secret@a:1,b:2")},
	{"REDIS_TYPE=SENTINEL REDIS_URL=main,a:1,b:2 REDIS_AUTH=p REDIS_SENTINEL_AUTH=u:q",
		storeOf("redis+sentinel://:p@a:1,b:2/main" +
			"?sentinel-user=u&sentinel-password=q")},
}

func TestEnvironment(t *testing.T) {
	var tested []string
	for _, c := range environments {
		environ := strings.Fields(c.environ)
		for _, entry := range environ {
			name, _, _ := strings.Cut(entry, "=")
			tested = append(tested, name)
		}
		got, ignored, err := ReadEnvironment(append(environ, "PATH=/bin", "HOME"))
		if err != nil || len(ignored) > 0 || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v %q %v, want\n%+v", c.environ, got, ignored, err, c.want)
		}
	}
	for _, v := range new(environment).variables() {
		if !slices.Contains(tested, v.name) {
			t.Errorf("%s is not tested", v.name)
		}
	}
}

// Passwords arrive as they are, whatever signs they have.
func TestStoreOfEnvironment(t *testing.T) {
	const password = `p:@/?#&%+ ,"\é`
	s, _, err := ReadEnvironment([]string{"REDIS_TYPE=CLUSTER", "REDIS_URL=a:1,b:2",
		"REDIS_AUTH=us=er:" + password})
	if err != nil {
		t.Fatal(err)
	}
	u, err := backend.ParseURL(s.Store)
	if err != nil || u.Username != "us=er" || u.Password() != password ||
		!slices.Equal(u.Hosts, []string{"a:1", "b:2"}) {
		t.Errorf("%+v %q %v", u, u.Password(), err)
	}
}

func TestWrongEnvironment(t *testing.T) {
	for environ, want := range map[string]string{
		"PORT=http":                       "PORT is not a port",
		"GRPC_PORT=70000":                 "GRPC_PORT is not a port",
		"GRPC_MAX_CONNECTION_AGE=1":       "GRPC_MAX_CONNECTION_AGE is not a time",
		"GRPC_MAX_CONNECTION_AGE_GRACE=0": "GRPC_MAX_CONNECTION_AGE_GRACE is not a time",
		"GRPC_SERVER_USE_TLS=true":        "GRPC_SERVER_USE_TLS needs GRPC_SERVER_TLS_CERT",
		"GRPC_CLIENT_TLS_SAN=envoy":       "GRPC_CLIENT_TLS_SAN is not supported",
		"LOG_LEVEL=loud":                  "LOG_LEVEL is not a level",
		"LOG_FORMAT=xml":                  "LOG_FORMAT is neither text nor json",
		"CONFIG_TYPE=XDS":                 "CONFIG_TYPE is neither FILE nor GRPC_XDS_SOTW",
		byXDS + " CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c": "" +
			"CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY need each other",
		xdsVar + "NODE_METADATA=secret":        "CONFIG_GRPC_XDS_NODE_METADATA has no",
		xdsVar + "CLIENT_ADDITIONAL_HEADERS=a": "ADDITIONAL_HEADERS has no names",
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=a":   "is not a number of bytes",
		"XDS_CLIENT_BACKOFF_JITTER=secret":     "JITTER is neither true nor false",
		"MERGE_DOMAIN_CONFIG=maybe":            "MERGE_DOMAIN_CONFIG is neither true nor false",
		"NEAR_LIMIT_RATIO=80":                  "NEAR_LIMIT_RATIO is not a number above 0",
		"NEAR_LIMIT_RATIO=NaN":                 "NEAR_LIMIT_RATIO is not a number above 0",
		"QUOTA_MODE=true":                      "QUOTA_MODE is not supported",
		"BACKEND_TYPE=memcache":                "BACKEND_TYPE is not supported",
		"REDIS_SOCKET_TYPE=unix":               "REDIS_SOCKET_TYPE is not supported",
		"REDIS_TYPE=RING REDIS_URL=a:1":        "REDIS_TYPE is not SINGLE, CLUSTER or SENTINEL",
		"REDIS_URL=/run/redis.sock":            "REDIS_URL is a Unix socket",
		"REDIS_URL=a:1,b:2":                    "REDIS_URL has several addresses",
		"REDIS_URL=a:secret":                   notHostPort,
		"REDIS_URL=redis://me:secret@a:x":      neitherHostPort,
		"REDIS_URL=redis://a?secret=1":         neitherHostPort,
		"REDIS_AUTH=secret":                    "REDIS_URL is not set",
		"REDIS_TYPE=SENTINEL REDIS_URL=secret": "REDIS_URL is not the name of the primary, " +
			"a comma",
		response + " LIMIT_RESET_HEADER=a=b": `"a=b" is not the name of a header field`,
	} {
		_, _, err := ReadEnvironment(strings.Fields(environ))
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error is %v, want %s", environ, err, want)
		}
	}
	_, _, err := ReadEnvironment([]string{"PORT=x", "LOG_FORMAT=x"})
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two that are wrong: %v", err)
	}
}

func TestIgnoredEnvironment(t *testing.T) {
	_, ignored, err := ReadEnvironment([]string{"USE_STATSD=false", "PORT=80", "DEBUG_PORT=6070",
		"REDIS_POOL_SIZE=", "REDIS_PERSECOND_URL=a", "USE_STATSD=true", "REDIS_PORT=tcp://a:1",
		"TRACING_ENABLED=false", "EXPIRATION_JITTER_MAX_SECONDS=0"})
	want := []string{"DEBUG_PORT", "REDIS_PERSECOND_URL", "USE_STATSD"}
	if err != nil || !slices.Equal(ignored, want) {
		t.Errorf("%q %v, want %q", ignored, err, want)
	}
	if !slices.IsSorted(meaningless) {
		t.Error("the names are not sorted")
	}
	for _, v := range new(environment).variables() {
		if slices.Contains(meaningless, v.name) {
			t.Errorf("%s has a meaning", v.name)
		}
	}
}

// TestNewlines: a value that comes from a file has a newline at its end.
func TestNewlines(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\n\n"} {
		for _, c := range environments {
			environ := strings.Fields(c.environ)
			for i := range environ {
				environ[i] += end
			}
			got, ignored, err := ReadEnvironment(append(environ, "USE_STATSD="+end))
			if err != nil || len(ignored) > 0 || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %+v %q %v, want %+v", environ, got, ignored, err, c.want)
			}
		}
	}
	s, _, err := ReadEnvironment([]string{"REDIS_URL=a:1, b:2\n", "REDIS_TYPE=cluster"})
	if want := "redis+cluster://a:1,b:2"; err != nil || s.Store != want {
		t.Errorf("%s %v, want %s", s.Store, err, want)
	}
}
