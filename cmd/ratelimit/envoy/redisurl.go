package envoy

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/backend"
)

// redis is what variables say of servers.
type redis struct {
	typ, url, auth, sentinelAuth string
	tls, skipHost                bool
	ca, cert, key                string
	timeout                      time.Duration
	prefix                       string
}

// store returns the URL of a store, or nothing if no variable names a server.
func (r *redis) store() (string, error) {
	if r.url == "" {
		if *r != (redis{}) {
			return "", errors.New("REDIS_URL is not set, but other variables of servers are")
		}
		return "", nil
	}
	hosts := strings.Split(r.url, ",")
	for i, host := range hosts {
		hosts[i] = strings.TrimSpace(host)
	}
	kind, path := "", ""
	switch strings.ToLower(r.typ) {
	case "", "single":
		if len(hosts) > 1 {
			return "", errors.New("REDIS_URL has several addresses: set REDIS_TYPE to CLUSTER, " +
				"or to SENTINEL if the first is the name of the primary")
		}
	case "cluster":
		kind = "+cluster"
	case "sentinel":
		if len(hosts) < 2 {
			return "", errors.New("REDIS_URL is not the name of the primary, a comma, and the " +
				"addresses of Sentinels")
		}
		kind, path, hosts = "+sentinel", "/"+escape(hosts[0]), hosts[1:]
	default:
		return "", errors.New("REDIS_TYPE is not SINGLE, CLUSTER or SENTINEL")
	}
	return r.join(kind, path, hosts)
}

// join makes the URL of addresses, of which each is host:port or a redis:// URL.
func (r *redis) join(kind, path string, addresses []string) (string, error) {
	user, password := r.credentials(r.auth)
	hosts := slices.Clone(addresses)
	for i, address := range addresses {
		switch {
		case strings.HasPrefix(address, "/"):
			return "", errors.New("REDIS_URL is a Unix socket: servers are reached over TCP")
		case !strings.Contains(address, "://"):
			continue
		}
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.RawQuery != "" {
			return "", errors.New("REDIS_URL has an address that is neither host:port nor " +
				"redis://[user:password@]host:port[/database]")
		}
		r.tls = r.tls || u.Scheme == "rediss"
		if hosts[i] = u.Host; kind == "" {
			path = strings.TrimSuffix(u.EscapedPath(), "/")
		}
		if secret, ok := u.User.Password(); ok && r.auth == "" {
			user, password = u.User.Username(), secret
		}
	}
	scheme := "redis"
	if r.tls {
		scheme += "s"
	}
	credentials := ""
	if password != "" {
		credentials = escape(user) + ":" + escape(password) + "@"
	}
	store := scheme + kind + "://" + credentials + strings.Join(hosts, ",") + path + r.params(kind)
	if _, err := backend.ParseURL(store); err != nil {
		return "", errors.New("REDIS_URL has an address that is not host:port")
	}
	return store, nil
}

// credentials splits what REDIS_AUTH has: a password, or a user, a colon and a password.
func (r *redis) credentials(auth string) (user, password string) {
	if user, password, ok := strings.Cut(auth, ":"); ok {
		return user, password
	}
	return "", auth
}

func (r *redis) params(kind string) string {
	params, sign := "", "?"
	add := func(name, value string) {
		if value != "" {
			params += sign + name + "=" + escape(value)
			sign = "&"
		}
	}
	if r.timeout > 0 {
		add("timeout", r.timeout.String())
	}
	add("prefix", r.prefix)
	if r.tls {
		add("tls-ca", r.ca)
		add("tls-cert", r.cert)
		add("tls-key", r.key)
		if r.skipHost {
			add("tls-skip-hostname", "true")
		}
	}
	if kind == "+sentinel" {
		user, password := r.credentials(r.sentinelAuth)
		add("sentinel-user", user)
		add("sentinel-password", password)
	}
	return params
}

// escape percent-encodes all but letters, digits and a few signs.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
