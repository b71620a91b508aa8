package command

import (
	"fmt"
	"maps"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
	"github.com/truewindow/ratelimit/cmd/ratelimit/raise"
)

// helpTexts has the help of every flag, by command and name.
var helpTexts = map[string]map[string]string{
	"serve": {
		"config": "A YAML file with the limits, in place of --limit, --in-flight and --block; or " +
			"a file of envoyproxy/ratelimit, or a directory with such files. Changes take " +
			"effect without a restart.",
		"store": "Where the state is kept: memory, or a URL such as " +
			"redis://user:password@host:port/0, redis+cluster://host1,host2 or " +
			"rediss+sentinel://host1,host2/primary; in a file, as sqlite:/path/limits.db; or " +
			"postgres://user:password@host/database, and so mysql. The schemes rueidis and " +
			"valkey choose another client library, which also caches refusals. Parameters " +
			"follow the URL, as in memory:?max-keys=100000 or " +
			"redis://host?timeout=50ms&prefix=app:. Default: that of --config, or memory.",
		"on-failure": "What to answer while the store is unavailable: closed answers 503; open " +
			"admits everything and records nothing; local lets each process admit its share of " +
			"the limit. Required unless the store is memory, which is always available. New " +
			"keys for which a store has no room get 503 with each policy.",
		"instances": "How many processes share the server. Required by --on-failure=local: each " +
			"process admits one N-th of every limit while the server is unavailable.",
		"key-secret-file": "A file with a secret of at least 32 bytes: the store gets keyed " +
			"hashes of keys in place of the keys. With another secret all limits count from " +
			"zero. Default: that of --config, or none.",
		"limit": "At most MAX units in any WINDOW, such as 10/1m or burst=20/500ms. Repeat the " +
			"flag, or separate limits by commas: a request is admitted if all limits admit " +
			"it. Default: 10/1m.",
		"in-flight": "At most MAX calls in flight at once, such as calls=20/10m. A call that is " +
			"not settled is free after WINDOW. Requests name the limit. Repeat the flag, or " +
			"separate by commas.",
		"block": "Lets requests block keys, each for at most LONGEST, such as blocked=24h. " +
			"Requests name the limit. Repeat the flag, or separate by commas.",
		"top-keys": "Count refused keys, and list the N most refused of each limit, up to " +
			"100000, at GET /v1/top-keys. The default, 0, counts none.",
		"top-keys-plain": "In the list of --top-keys show the keys themselves, not hashes of them.",
		"addr": "Address to listen on, or unix:PATH for a socket. Default: " +
			"127.0.0.1:8080.",
		"admin-addr": "Address for what reads or writes: metrics, the page, explain, the most " +
			"refused keys, force, block and reset. Without it --addr answers them.",
		"forward-auth": "The proxy that asks at /v1/check: caddy, haproxy, nginx or traefik, " +
			"which send X-Forwarded-Method, -Host and -Uri; ingress-nginx, which sends " +
			"X-Original-Method and X-Original-URL; or envoy, also of Istio, which asks with the " +
			"method and the host of its client, and with its path after /v1/check. Nothing else " +
			"is read in their place. Default: ${default}.",
		"entry": "An entry of requests that proxies ask about at /v1/check: a name, and a header " +
			"or client, method, host or path. Each request has these four under their own names. " +
			"Repeat the flag, or separate by commas.",
		"trusted-proxy": "Addresses of the proxies in front of this service, such as " +
			"10.0.0.2/32, whose X-Forwarded-For is read to find the client. Whoever is in such a " +
			"network can choose its address. Repeat the flag, or separate by commas.",
		"grpc-addr": "Address for Envoy's rate limit protocol and Kuadrant's over gRPC, or " +
			"unix:PATH. Envoy's is also answered as JSON at /json of --addr.",
		"grpc-max-connection-age": "After how long, give or take a tenth, a connection to " +
			"--grpc-addr is closed, so that clients find other processes; calls in flight end " +
			"first. If it is below --drain, none is left when the service stops. Default: 24h.",
		"envoy-charge": "What Envoy's calls charge if one of their descriptors is refused: all " +
			"of them or none (all), each that is not refused (each), or all of them (always), " +
			"as envoyproxy/ratelimit does. Budgets that are charged at the end of a " +
			"stream need always. DOMAIN=HOW is for one domain: repeat the flag, or separate by " +
			"commas. Default: ${default}.",
		"envoy-look": "When calls with hits_addend 0 are admitted: while a unit is free (free), " +
			"or also when the limit was just reached (reached), as envoyproxy/ratelimit does. " +
			"Default: ${default}.",
		"tls-cert": "Certificate of the service in PEM, with --tls-key. The files are read again " +
			"when they change. Unix sockets have no TLS.",
		"tls-key": "Key of --tls-cert in PEM.",
		"tls-client-ca": "Authorities in PEM: clients need a certificate of one of them, on all " +
			"addresses but sockets, and for /healthz and /readyz too.",
		"read-token-file": "Tokens, one in each line, with a name after it or without, for " +
			"metrics, the page, explain and the most refused keys. Without it everyone who " +
			"reaches the service can read them, unless --access-file says otherwise.",
		"write-token-file": "Tokens, as in --read-token-file, for force, block and reset, which " +
			"nobody can use without it. They can read too.",
		"access-file": "A YAML file with names and rights of tokens and of certificates, and the " +
			"rights of anyone: may is a list of decide, settle, read and write, and limits " +
			"names the only limits. Read again when it changes.",
		"audit": "Append an event as JSON in a line for each write by a person or a tool, and " +
			"for each request that a right is missing for, to this file, or for - to standard " +
			"output. The file is opened again when it was renamed, and on SIGHUP.",
		"audit-otlp": "Also send these events as logs with OTLP over HTTP, as the variables of " +
			"OpenTelemetry say.",
		"audit-keys": "Write keys to the audit, not only hashes of them.",
		"settle-within-hold": "Without a token of --write-token-file, settlements charge at most " +
			"what is held, and Kuadrant's Report nothing. gRPC calls have the token in the " +
			"metadata authorization: Bearer TOKEN.",
		"drain": "How long the service answers after a signal to stop, and is not ready. The " +
			"default, 0s, suits a single process.",
		"host": "Host name by which clients reach the daemon, without a port. Localhost, IP " +
			"addresses and the host of --addr always work; other hosts get 421, except at " +
			"/v1/check. Repeat the flag, or separate by commas.",
		"lease": "Share of each limit, such as 2%, at most 10%, that may go unused so that this " +
			"process can decide hot keys without a call of the server. A limit of --config may " +
			"have its own. Default: none.",
		"retry-jitter": "Make Retry-After longer by a random number of seconds, up to this share " +
			"of it, such as 0.1, so that clients that are refused at one instant do not all come " +
			"back at one. All else stays exact. Default: ${default}.",
		"breaker-failures": "After N failed calls in a row the daemon stops calling the server: " +
			"the breaker opens. Default, also for 0: ${default}.",
		"breaker-pause": "How long an open breaker waits before it lets one call through to try " +
			"the server. Default, also for 0: ${default}.",
		"otlp": "Also send the metrics with OTLP over HTTP. The variables of OpenTelemetry, such " +
			"as OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_METRIC_EXPORT_INTERVAL, say where and when.",
		"log-decisions": "Log this share of the decisions, such as 0.01: one line with the " +
			"limits, hashes of their keys, and whether the request was admitted. " +
			"Default: ${default}.",
		"log-format": "Format of the log on standard error: text or json. Default: text.",
		"log-level":  "Lowest level that is logged: debug, info, warn or error. Default: info.",
	},
	"take": withClientHelp(map[string]string{
		"key":   "The key, for limits of --limit.",
		"units": "How many units. Default: 1.",
		"hold":  "Hold the units for so long, until ratelimit settle.",
	}),
	"peek": withClientHelp(map[string]string{
		"key":      "The key, for limits of --limit, or with --of-limit.",
		"of-limit": "The limit of --key. Default: all of --limit.",
		"units":    "How many units would be taken. Default: 1, or none of a block.",
	}),
	"ready": {
		"addr": "Where the service listens on this machine, or unix:PATH. Default: ${default}.",
		"url":  "The service, in place of --addr. Its certificate is verified.",
		"tls-cert": "Certificate of the service, with --tls-key: ask with TLS, and show it if " +
			"the service has --tls-client-ca. That of the service is not verified.",
		"tls-key": "Key of --tls-cert in PEM.",
		"timeout": "How long an answer may take. Default: ${default}.",
	},
	"top": {
		"url":        clientHelp["url"],
		"token-file": clientHelp["token-file"],
		"json":       "Print what the service answers, as it is.",
		"every":      "Ask again after this time. Default: ${default}.",
		"once":       "Ask once.",
		"lines":      "How many limits and keys to show. Default: ${default}.",
	},
	"settle": withClientHelp(map[string]string{"used": "The units that were used."}),
	"block":  clientHelp,
	"reset": withClientHelp(map[string]string{
		"of-limit": "The limit. Default: all of --limit.",
	}),
	"raise":    raise.Help,
	"validate": inspect.ValidateHelp,
	"explain": withHelp(inspect.ExplainHelp, map[string]string{
		"token-file": clientHelp["token-file"],
	}),
}

// withClientHelp returns texts with those of clientHelp.
func withClientHelp(texts map[string]string) map[string]string {
	return withHelp(clientHelp, texts)
}

// withHelp returns texts with others.
func withHelp(others, texts map[string]string) map[string]string {
	maps.Copy(texts, others)
	return texts
}

// setHelp sets the help of the flags of each command from helpTexts. A flag without a text and a
// text without a flag are errors.
func setHelp(k *kong.Kong) error {
	for _, command := range k.Model.Children {
		texts := helpTexts[command.Name]
		for _, flag := range command.Flags {
			text, ok := texts[flag.Name]
			if !ok {
				return fmt.Errorf("%s --%s has no help text", command.Name, flag.Name)
			}
			flag.Help = text
		}
		if len(texts) != len(command.Flags) {
			return fmt.Errorf("%s has %d flags and %d help texts",
				command.Name, len(command.Flags), len(texts))
		}
	}
	return nil
}
