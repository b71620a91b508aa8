package envoy

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
)

// A variable is an environment variable with what its value sets.
type variable struct {
	name string
	set  func(*environment, string) error
}

// variables have a meaning here. An empty one counts as not set.
var variables = []variable{
	{"HOST", text(func(e *environment) *string { return &e.host })},
	{"PORT", port(func(e *environment) *string { return &e.port })},
	{"GRPC_HOST", text(func(e *environment) *string { return &e.grpcHost })},
	{"GRPC_PORT", port(func(e *environment) *string { return &e.grpcPort })},
	{"GRPC_UDS", text(func(e *environment) *string { return &e.grpcSocket })},
	{"GRPC_MAX_CONNECTION_AGE", duration(func(e *environment) *time.Duration {
		return &e.ServerOptions.MaxConnectionAge
	})},
	{"GRPC_MAX_CONNECTION_AGE_GRACE", duration(func(e *environment) *time.Duration {
		return &e.ServerOptions.MaxConnectionAgeGrace
	})},
	{"GRPC_SERVER_USE_TLS", flag(func(e *environment) *bool { return &e.useTLS })},
	{"GRPC_SERVER_TLS_CERT", text(func(e *environment) *string { return &e.tls.Cert })},
	{"GRPC_SERVER_TLS_KEY", text(func(e *environment) *string { return &e.tls.Key })},
	{"GRPC_CLIENT_TLS_CACERT", text(func(e *environment) *string { return &e.tls.ClientCA })},
	{"GRPC_CLIENT_TLS_SAN", only("", "clients are not checked by a name in their certificate: "+
		"use an authority that signs only those of Envoy")},
	{"LOG_LEVEL", (*environment).setLogLevel},
	{"LOG_FORMAT", (*environment).setLogFormat},

	{"CONFIG_TYPE", only("FILE", "limits come from files only")},
	{"RUNTIME_ROOT", runtimeText(func(r *envoyfile.Runtime) *string { return &r.Root })},
	{"RUNTIME_SUBDIRECTORY", runtimeText(func(r *envoyfile.Runtime) *string {
		return &r.Subdirectory
	})},
	{"RUNTIME_APPDIRECTORY", runtimeText(func(r *envoyfile.Runtime) *string {
		return &r.AppDirectory
	})},
	{"RUNTIME_IGNOREDOTFILES", runtimeFlag(func(r *envoyfile.Runtime) *bool {
		return &r.IgnoreDotFiles
	})},
	{"RUNTIME_WATCH_ROOT", runtimeFlag(func(r *envoyfile.Runtime) *bool { return &r.WatchRoot })},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", flag(func(e *environment) *bool {
		return &e.ForceStart
	})},
	{"MERGE_DOMAIN_CONFIG", flag(func(e *environment) *bool { return &e.FileOptions.Merge })},
	{"NEAR_LIMIT_RATIO", (*environment).setNearLimitRatio},

	{"SHADOW_MODE", flag(func(e *environment) *bool { return &e.Config.Shadow })},
	{"QUOTA_MODE", only("false", "a limit that is exceeded refuses whatever others say")},
	{"RESPONSE_DYNAMIC_METADATA", flag(func(e *environment) *bool {
		return &e.Config.DynamicMetadata
	})},
	{"LIMIT_RESPONSE_HEADERS_ENABLED", flag(func(e *environment) *bool { return &e.inResponse })},
	{"LIMIT_LIMIT_HEADER", text(func(e *environment) *string { return &e.response.Limit })},
	{"LIMIT_REMAINING_HEADER", text(func(e *environment) *string { return &e.response.Remaining })},
	{"LIMIT_RESET_HEADER", text(func(e *environment) *string { return &e.response.Reset })},
	{"LIMIT_REQUEST_HEADERS_ENABLED", flag(func(e *environment) *bool { return &e.inRequest })},
	{"LIMIT_REQUEST_LIMIT_HEADER", text(func(e *environment) *string { return &e.request.Limit })},
	{"LIMIT_REQUEST_REMAINING_HEADER", text(func(e *environment) *string {
		return &e.request.Remaining
	})},
	{"LIMIT_REQUEST_RESET_HEADER", text(func(e *environment) *string { return &e.request.Reset })},

	{"BACKEND_TYPE", only("redis", "limits are kept on Redis and Valkey, and not on memcached")},
	{"REDIS_SOCKET_TYPE", only("tcp", "servers are reached over TCP")},
	{"REDIS_TYPE", redisText(func(r *redis) *string { return &r.typ })},
	{"REDIS_URL", redisText(func(r *redis) *string { return &r.url })},
	{"REDIS_AUTH", redisText(func(r *redis) *string { return &r.auth })},
	{"REDIS_SENTINEL_AUTH", redisText(func(r *redis) *string { return &r.sentinelAuth })},
	{"REDIS_TLS", flag(func(e *environment) *bool { return &e.redis.tls })},
	{"REDIS_TLS_CACERT", redisText(func(r *redis) *string { return &r.ca })},
	{"REDIS_TLS_CLIENT_CERT", redisText(func(r *redis) *string { return &r.cert })},
	{"REDIS_TLS_CLIENT_KEY", redisText(func(r *redis) *string { return &r.key })},
	{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", flag(func(e *environment) *bool {
		return &e.redis.skipHost
	})},
	{"REDIS_TIMEOUT", duration(func(e *environment) *time.Duration { return &e.redis.timeout })},
	{"CACHE_KEY_PREFIX", redisText(func(r *redis) *string { return &r.prefix })},
}

// meaningless are the other variables of envoyproxy/ratelimit.
var meaningless = []string{
	"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
	"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "CONFIG_GRPC_XDS_NODE_ID",
	"CONFIG_GRPC_XDS_NODE_METADATA", "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
	"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
	"CONFIG_GRPC_XDS_SERVER_URL", "CONFIG_GRPC_XDS_SERVER_USE_TLS", "DEBUG_HOST", "DEBUG_PORT",
	"DISABLE_STATS", "EXPIRATION_JITTER_MAX_SECONDS", "EXTRA_TAGS",
	"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
	"LOCAL_CACHE_SIZE_IN_BYTES", "MEMCACHE_HOST_PORT", "MEMCACHE_MAX_IDLE_CONNS",
	"MEMCACHE_SRV", "MEMCACHE_SRV_REFRESH", "MEMCACHE_TLS", "MEMCACHE_TLS_CACERT",
	"MEMCACHE_TLS_CLIENT_CERT", "MEMCACHE_TLS_CLIENT_KEY",
	"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "PROMETHEUS_ADDR", "PROMETHEUS_MAPPER_YAML",
	"PROMETHEUS_PATH", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
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
	"USE_DOG_STATSD_MOGRIFIERS", "USE_PROMETHEUS", "USE_STATSD",
	"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "XDS_CLIENT_BACKOFF_JITTER",
	"XDS_CLIENT_BACKOFF_MAX_INTERVAL", "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
	"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
}

func (e *environment) setLogLevel(value string) error {
	levels := map[string]slog.Level{
		"panic": slog.LevelError, "fatal": slog.LevelError, "error": slog.LevelError,
		"warn": slog.LevelWarn, "warning": slog.LevelWarn, "info": slog.LevelInfo,
		"debug": slog.LevelDebug, "trace": slog.LevelDebug,
	}
	level, ok := levels[strings.ToLower(value)]
	if !ok {
		return errors.New("is not a level: error, warn, info or debug")
	}
	e.LogLevel = &level
	return nil
}

func (e *environment) setLogFormat(value string) error {
	if value = strings.ToLower(value); value != "text" && value != "json" {
		return errors.New("is neither text nor json")
	}
	e.LogFormat = value
	return nil
}

func (e *environment) setNearLimitRatio(value string) error {
	ratio, err := strconv.ParseFloat(value, 64)
	if err != nil || !(ratio > 0 && ratio <= 1) {
		return errors.New("is not a number above 0, and at most 1")
	}
	e.FileOptions.Warn = ratio
	return nil
}

func text(of func(*environment) *string) func(*environment, string) error {
	return func(e *environment, value string) error {
		*of(e) = value
		return nil
	}
}

func redisText(of func(*redis) *string) func(*environment, string) error {
	return text(func(e *environment) *string { return of(&e.redis) })
}

func runtimeText(of func(*envoyfile.Runtime) *string) func(*environment, string) error {
	return text(func(e *environment) *string { return of(e.files()) })
}

func runtimeFlag(of func(*envoyfile.Runtime) *bool) func(*environment, string) error {
	return flag(func(e *environment) *bool { return of(e.files()) })
}

func flag(of func(*environment) *bool) func(*environment, string) error {
	return func(e *environment, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("is neither true nor false")
		}
		*of(e) = b
		return nil
	}
}

func duration(of func(*environment) *time.Duration) func(*environment, string) error {
	return func(e *environment, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return errors.New("is not a time above 0, such as 24h or 50ms")
		}
		*of(e) = d
		return nil
	}
}

func port(of func(*environment) *string) func(*environment, string) error {
	return func(e *environment, value string) error {
		if n, err := strconv.ParseUint(value, 10, 16); err != nil || n == 0 {
			return errors.New("is not a port")
		}
		*of(e) = value
		return nil
	}
}

// only accepts one value, which is what is done without it.
func only(accepted, why string) func(*environment, string) error {
	return func(_ *environment, value string) error {
		if strings.EqualFold(value, accepted) {
			return nil
		}
		return errors.New("is not supported: " + why)
	}
}
