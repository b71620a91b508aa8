package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// An AuditLog logs who changes what is recorded, without keys and tokens.
type AuditLog struct {
	log     *slog.Logger
	decider *decision.Decider
	hash    func(key string) string // of keys; nil outside of a service

	releases, refusals lograte.Limit
}

// NewAuditLog returns a log with the hashes of keys that hash returns, which may be nil.
func NewAuditLog(
	log *slog.Logger, d *decision.Decider, hash func(key string) string,
) *AuditLog {
	return &AuditLog{log: log, decider: d, hash: hash}
}

// keyHash returns what the log and the list of the most refused keys show for a key, or "" outside
// of a service.
func (l *AuditLog) keyHash(key string) string {
	if l.hash == nil || key == "" {
		return ""
	}
	return l.hash(key)
}

// write logs what has changed the states of keys under limits, or has failed to, without keys.
func (l *AuditLog) write(
	q *query, action string, limits, keys []string, err error, more ...slog.Attr,
) {
	hashes := []string{}
	for _, key := range keys {
		if h := l.keyHash(key); !slices.Contains(hashes, h) {
			hashes = append(hashes, h)
		}
	}
	outcome := "done"
	if err != nil {
		outcome = err.Error()
	}
	l.log.LogAttrs(q, slog.LevelInfo, "write", append([]slog.Attr{
		slog.String("action", action), slog.String("from", q.from),
		slog.Any("limits", limits), slog.Any("key_hashes", hashes),
		slog.String("outcome", outcome)}, more...)...)
}

// release logs that claims are not held any more and nothing was recorded, once a second at
// most: whoever holds units may end that.
func (l *AuditLog) release(q *query, claims []ratelimit.Claim, err error) {
	if ok, suppressed := l.releases.Pass(time.Now()); ok {
		var keys []string
		for _, c := range claims {
			keys = append(keys, c.Key)
		}
		l.write(q, "release", heldUnder(claims), keys, err, slog.Int("suppressed", suppressed))
	}
}

// refusal logs, once a second at most, that a request has no right, without its token and key.
func (l *AuditLog) refusal(w http.ResponseWriter, r *http.Request, p *problem.Problem) {
	ok, suppressed := l.refusals.Pass(time.Now())
	if !ok {
		return
	}
	limits, hashes := []string{}, []string{}
	limit, key := wanted(w, r)
	if limitOf(l.decider, limit) != nil { // another name may be a key
		limits = append(limits, limit)
	}
	if checkKey(&key) == nil {
		hashes = append(hashes, l.keyHash(key))
	}
	_, token := tokenOf(r)
	l.log.LogAttrs(r.Context(), slog.LevelWarn, "request refused: it has no right",
		slog.Int("status", p.Status), slog.Bool("token", token),
		slog.String("path", RouteOf(r.URL.Path)), slog.String("from", r.RemoteAddr),
		slog.Any("limits", limits), slog.Any("key_hashes", hashes),
		slog.Int("suppressed", suppressed))
}

// wanted returns the limit and the key that a request which is refused would write to, or "".
func wanted(w http.ResponseWriter, r *http.Request) (limit, key string) {
	if Needs(r.URL.Path) != ToWrite || r.Method != http.MethodPost {
		return "", ""
	}
	text, p := readBody(w, r)
	if p != nil {
		return "", ""
	}
	if IsPage(r.URL.Path) {
		form, err := url.ParseQuery(string(text))
		if err != nil {
			return "", ""
		}
		decoded, _ := base64.RawURLEncoding.DecodeString(form.Get("key")) // else no key
		return form.Get("limit"), string(decoded)
	}
	var body struct{ Limit, Key string }
	_ = json.Unmarshal(text, &body) // what is no such object has no limit
	return body.Limit, body.Key
}
