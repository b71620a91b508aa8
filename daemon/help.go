package daemon

import (
	"fmt"

	"github.com/alecthomas/kong"
)

// helpTexts has the help of every flag, by command and name.
var helpTexts = map[string]map[string]string{
	"serve": {
		"store": "Where the state is kept: memory, or a URL such as " +
			"redis://user:password@host:port/0, redis+cluster://host1,host2 or " +
			"rediss+sentinel://host1,host2/primary. The schemes rueidis and valkey choose " +
			"another client, which also caches refusals. Parameters follow the URL, as in " +
			"memory:?max-keys=100000 or redis://host?timeout=50ms&prefix=app: (${default}).",
		"on-failure": "What to answer while the server is unavailable: closed answers 503; open " +
			"admits all and records nothing; local lets each process admit its part of the " +
			"limit. Required for every store but memory.",
		"instances": "How many processes share the server. With --on-failure=local, which needs " +
			"it, each process admits one part in N of the limit while the server is unavailable.",
		"limit": "At most MAX units in any WINDOW, such as 10/1m or burst=20/500ms. Repeat the " +
			"flag, or separate limits by commas: a request is admitted if all admit it " +
			"(${default}).",
		"in-flight": "At most MAX calls in flight at once, each for at most WINDOW, such as " +
			"calls=20/10m. Requests refer to it by name. Repeat the flag, or separate by commas.",
		"block": "Lets requests block keys, each for at most LONGEST, such as blocked=24h. " +
			"Requests refer to it by name. Repeat the flag, or separate by commas.",
		"top-keys": "Keep the N most refused keys of each limit, up to 100000, for " +
			"GET /v1/top-keys. The default, 0, keeps none.",
		"top-keys-plain": "Show these keys in plain text, not as hashes with a secret of the " +
			"process.",
		"addr": "Address to listen on (${default}).",
		"host": "Host name under which clients reach the daemon, without a port. Requests for " +
			"other hosts get 421, except localhost, addresses and the host of --addr. Repeat " +
			"the flag, or separate by commas.",
		"breaker-failures": "The breaker opens after N failures in a row (${default}).",
		"breaker-pause": "How long the open breaker sends nothing to the server, before one " +
			"demand tries it (${default}).",
		"log-format": "Format of the log on standard error: text or json (${default}).",
		"log-level":  "Lowest level that is logged: debug, info, warn or error (${default}).",
	},
	"replay": {
		"log": "The log to replay, plain or compressed with gzip; - is standard input.",
		"limit": "A limit to try, such as 100/1m. Repeat the flag, or separate by commas, to try " +
			"several, each by itself.",
		"algorithm": "An algorithm to try with each limit: ${algorithms}. Repeat the flag, or " +
			"separate by commas (${default}).",
		"format": "Format of the lines: json, common or combined. By default the first line " +
			"decides.",
		"key-field": "The field to limit by. In JSON lines: a field, or a path such as " +
			"request.remote_ip (key). In access logs: client, user, method, path, status, bytes, " +
			"referer or agent (client).",
		"time-field": "The field of JSON lines that has the time: RFC 3339, or Unix time in " +
			"seconds, ms, µs or ns (time).",
		"units-field": "The field that has the units of a request. By default each takes 1.",
		"svg":         "Write a picture to FILE.",
		"json":        "Print the report as JSON.",
		"progress":    "Show progress on standard error, even if that is not a terminal.",
	},
	"demo": {
		"store": "The store that decides: memory, or a URL as for serve (${default}).",
		"limit": "The limit of each algorithm; the run takes five to six windows (${default}).",
		"svg":   "Also write the picture to FILE, as SVG.",
	},
}

// setHelp gives the flags of each command their texts from helpTexts. A flag without a text and a
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
