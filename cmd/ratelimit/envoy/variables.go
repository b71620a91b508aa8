package envoy

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// A variable is an environment variable with a meaning here, and what its value sets.
type variable struct {
	name string
	encoding.TextUnmarshaler
}

// variables returns those that set e.
func (e *environment) variables() []variable {
	return []variable{
		{"HOST", (*text)(&e.host)},
		{"PORT", (*port)(&e.port)},
		{"GRPC_HOST", (*text)(&e.grpcHost)},
		{"GRPC_PORT", (*port)(&e.grpcPort)},
		{"GRPC_UDS", (*text)(&e.grpcSocket)},
		{"GRPC_MAX_CONNECTION_AGE", (*duration)(&e.ServerOptions.MaxConnectionAge)},
		{"GRPC_MAX_CONNECTION_AGE_GRACE", (*duration)(&e.ServerOptions.MaxConnectionAgeGrace)},
		{"GRPC_SERVER_USE_TLS", (*flag)(&e.useTLS)},
		{"GRPC_SERVER_TLS_CERT", (*text)(&e.tls.Cert)},
		{"GRPC_SERVER_TLS_KEY", (*text)(&e.tls.Key)},
		{"GRPC_CLIENT_TLS_CACERT", (*text)(&e.tls.ClientCA)},
		{"GRPC_CLIENT_TLS_SAN", only{"", "clients are not checked by a name in their " +
			"certificate: use an authority that signs only those of Envoy"}},
		{"LOG_LEVEL", level{&e.LogLevel}},
		{"LOG_FORMAT", (*format)(&e.LogFormat)},

		{"CONFIG_TYPE", (*configType)(&e.byXDS)},
		{"CONFIG_GRPC_XDS_NODE_ID", (*text)(&e.xds.Node)},
		{"CONFIG_GRPC_XDS_NODE_METADATA", pairs{"=", &e.xds.Metadata}},
		{"CONFIG_GRPC_XDS_SERVER_URL", (*text)(&e.xds.Server)},
		{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", (*duration)(&e.xds.Connect)},
		{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", pairs{":", &e.xds.Headers}},
		{"CONFIG_GRPC_XDS_SERVER_USE_TLS", (*flag)(&e.xdsTLS)},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", (*text)(&e.files.Cert)},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", (*text)(&e.files.Key)},
		{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", (*text)(&e.files.CA)},
		{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", (*text)(&e.files.ServerName)},
		{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", (*duration)(&e.xds.First)},
		{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", (*duration)(&e.xds.Longest)},
		{"XDS_CLIENT_BACKOFF_JITTER", (*off)(&e.xds.NoJitter)},
		{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", (*size)(&e.xds.MaxMessage)},
		{"RUNTIME_ROOT", (*text)(&e.runtime.Root)},
		{"RUNTIME_SUBDIRECTORY", (*text)(&e.runtime.Subdirectory)},
		{"RUNTIME_APPDIRECTORY", (*text)(&e.runtime.AppDirectory)},
		{"RUNTIME_IGNOREDOTFILES", (*flag)(&e.runtime.IgnoreDotFiles)},
		{"RUNTIME_WATCH_ROOT", (*flag)(&e.runtime.WatchRoot)},
		{"FORCE_START_WITHOUT_INITIAL_CONFIG", (*flag)(&e.ForceStart)},
		{"MERGE_DOMAIN_CONFIG", (*flag)(&e.FileOptions.Merge)},
		{"NEAR_LIMIT_RATIO", (*ratio)(&e.FileOptions.Warn)},

		{"SHADOW_MODE", (*flag)(&e.Config.Shadow)},
		{"QUOTA_MODE", only{"false", "set quota_mode of descriptors instead"}},
		{"RESPONSE_DYNAMIC_METADATA", (*flag)(&e.Config.DynamicMetadata)},
		{"LIMIT_RESPONSE_HEADERS_ENABLED", (*flag)(&e.inResponse)},
		{"LIMIT_LIMIT_HEADER", (*text)(&e.response.Limit)},
		{"LIMIT_REMAINING_HEADER", (*text)(&e.response.Remaining)},
		{"LIMIT_RESET_HEADER", (*text)(&e.response.Reset)},
		{"LIMIT_REQUEST_HEADERS_ENABLED", (*flag)(&e.inRequest)},
		{"LIMIT_REQUEST_LIMIT_HEADER", (*text)(&e.request.Limit)},
		{"LIMIT_REQUEST_REMAINING_HEADER", (*text)(&e.request.Remaining)},
		{"LIMIT_REQUEST_RESET_HEADER", (*text)(&e.request.Reset)},

		{"USE_PROMETHEUS", (*flag)(&e.prometheus)},
		{"PROMETHEUS_ADDR", (*text)(&e.prometheusAddr)},
		{"PROMETHEUS_PATH", (*text)(&e.prometheusPath)},

		{"BACKEND_TYPE", only{"redis", "limits are kept on Redis and Valkey, not on memcached"}},
		{"REDIS_SOCKET_TYPE", only{"tcp", "servers are reached over TCP"}},
		{"REDIS_TYPE", (*text)(&e.redis.typ)},
		{"REDIS_URL", (*text)(&e.redis.url)},
		{"REDIS_AUTH", (*text)(&e.redis.auth)},
		{"REDIS_SENTINEL_AUTH", (*text)(&e.redis.sentinelAuth)},
		{"REDIS_TLS", (*flag)(&e.redis.tls)},
		{"REDIS_TLS_CACERT", (*text)(&e.redis.ca)},
		{"REDIS_TLS_CLIENT_CERT", (*text)(&e.redis.cert)},
		{"REDIS_TLS_CLIENT_KEY", (*text)(&e.redis.key)},
		{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", (*flag)(&e.redis.skipHost)},
		{"REDIS_TIMEOUT", (*duration)(&e.redis.timeout)},
		{"CACHE_KEY_PREFIX", (*text)(&e.redis.prefix)},
	}
}

// meaningless are the other variables of envoyproxy/ratelimit, and of those who start it.
var meaningless = []string{
	"DEBUG_HOST", "DEBUG_PORT",
	"DISABLE_STATS", "EXPIRATION_JITTER_MAX_SECONDS", "EXTRA_TAGS",
	"GRPC_SERVER_TLS_CA_CERT", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
	"LOCAL_CACHE_SIZE_IN_BYTES", "MEMCACHE_HOST_PORT", "MEMCACHE_MAX_IDLE_CONNS",
	"MEMCACHE_SRV", "MEMCACHE_SRV_REFRESH", "MEMCACHE_TLS", "MEMCACHE_TLS_CACERT",
	"MEMCACHE_TLS_CLIENT_CERT", "MEMCACHE_TLS_CLIENT_KEY",
	"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "PROMETHEUS_MAPPER_YAML",
	"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
	"REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", "REDIS_CLUSTER_PIPELINE_PARALLELISM",
	"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "REDIS_PERSECOND", "REDIS_PERSECOND_AUTH",
	"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "REDIS_PERSECOND_PIPELINE_LIMIT",
	"REDIS_PERSECOND_PIPELINE_WINDOW", "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
	"REDIS_PERSECOND_POOL_SIZE", "REDIS_PERSECOND_SENTINEL_AUTH", "REDIS_PERSECOND_SOCKET_TYPE",
	"REDIS_PERSECOND_TIMEOUT", "REDIS_PERSECOND_TLS", "REDIS_PERSECOND_TYPE",
	"REDIS_PERSECOND_URL", "REDIS_PIPELINE_LIMIT", "REDIS_PIPELINE_WINDOW",
	"REDIS_POOL_ON_EMPTY_BEHAVIOR", "REDIS_POOL_SIZE", "REDIS_STARTUP_INITIAL_INTERVAL",
	"REDIS_STARTUP_MAX_ELAPSED_TIME", "REDIS_STARTUP_MAX_INTERVAL",
	"STATSD_HOST", "STATSD_PORT",
	"STATS_FLUSH_INTERVAL", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "TRACING_ENABLED",
	"TRACING_EXPORTER_PROTOCOL", "TRACING_SAMPLING_RATE", "TRACING_SERVICE_INSTANCE_ID",
	"TRACING_SERVICE_NAME", "TRACING_SERVICE_NAMESPACE", "USE_DOG_STATSD",
	"USE_DOG_STATSD_MOGRIFIERS", "USE_STATSD",
	"XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
}

type (
	text     string
	port     string // of TCP
	flag     bool
	duration time.Duration
	ratio    float64
	format   string // of the log
	off      bool   // the opposite of a flag
	size     int    // in bytes
	// configType is true for xDS.
	configType bool
	// pairs are names and values with a separator, with a comma after each but the last.
	pairs struct {
		separator string
		of        *map[string]string
	}
	level struct{ of **slog.Level }
	// only accepts one value, which is what is done without it.
	only struct{ accepted, why string }
)

func (v *text) UnmarshalText(value []byte) error {
	*v = text(value)
	return nil
}

func (v *port) UnmarshalText(value []byte) error {
	if n, err := strconv.ParseUint(string(value), 10, 16); err != nil || n == 0 {
		return errors.New("is not a port")
	}
	*v = port(value)
	return nil
}

func (v *flag) UnmarshalText(value []byte) error {
	b, err := strconv.ParseBool(string(value))
	if err != nil {
		return errors.New("is neither true nor false")
	}
	*v = flag(b)
	return nil
}

func (v *off) UnmarshalText(value []byte) error {
	var on flag
	err := on.UnmarshalText(value)
	*v = off(!on)
	return err
}

func (v *size) UnmarshalText(value []byte) error {
	n, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil || n < 0 {
		return errors.New("is not a number of bytes")
	}
	*v = size(n)
	return nil
}

func (v *configType) UnmarshalText(value []byte) error {
	switch strings.ToUpper(string(value)) {
	case "FILE":
		*v = false
	case "GRPC_XDS_SOTW":
		*v = true
	default:
		return errors.New("is neither FILE nor GRPC_XDS_SOTW")
	}
	return nil
}

func (v pairs) UnmarshalText(value []byte) error {
	all := make(map[string]string)
	for text := range strings.SplitSeq(string(value), ",") {
		name, value, ok := strings.Cut(text, v.separator)
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Errorf("has no names and values as in a%[1]sb,c%[1]sd", v.separator)
		}
		all[name] = strings.TrimSpace(value)
	}
	*v.of = all
	return nil
}

func (v *duration) UnmarshalText(value []byte) error {
	d, err := time.ParseDuration(string(value))
	if err != nil || d <= 0 {
		return errors.New("is not a time above 0, such as 24h or 50ms")
	}
	*v = duration(d)
	return nil
}

func (v *ratio) UnmarshalText(value []byte) error {
	r, err := strconv.ParseFloat(string(value), 64)
	if err != nil || !(r > 0 && r <= 1) {
		return errors.New("is not a number above 0, and at most 1")
	}
	*v = ratio(r)
	return nil
}

func (v *format) UnmarshalText(value []byte) error {
	name := strings.ToLower(string(value))
	if name != "text" && name != "json" {
		return errors.New("is neither text nor json")
	}
	*v = format(name)
	return nil
}

func (v level) UnmarshalText(value []byte) error {
	levels := map[string]slog.Level{
		"panic": slog.LevelError, "fatal": slog.LevelError, "error": slog.LevelError,
		"warn": slog.LevelWarn, "warning": slog.LevelWarn, "info": slog.LevelInfo,
		"debug": slog.LevelDebug, "trace": slog.LevelDebug,
	}
	l, ok := levels[strings.ToLower(string(value))]
	if !ok {
		return errors.New("is not a level: error, warn, info or debug")
	}
	*v.of = &l
	return nil
}

func (v only) UnmarshalText(value []byte) error {
	if strings.EqualFold(string(value), v.accepted) {
		return nil
	}
	return errors.New("is not supported: " + v.why)
}
