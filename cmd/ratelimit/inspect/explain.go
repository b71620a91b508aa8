// Package inspect has the commands that read the service's configuration and decide nothing.
package inspect

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// Explain is "ratelimit explain", for package kong.
type Explain struct {
	File    string   `arg:"" help:"A configuration file, or the URL of a service."`
	Entries []string `arg:"" optional:"" name:"name=value" sep:"none" help:"The entries."`
	Domain  string   `placeholder:"NAME"`
	JSON    bool     `name:"json"`
}

// ExplainHelp has the help of each flag, by name.
var ExplainHelp = map[string]string{
	"domain": "The domain of the request. Limits see it as an entry named domain.",
	"json":   "Print the result as JSON.",
}

// Validate is called by kong when it has parsed the command line.
func (c *Explain) Validate() error {
	_, err := ParseDescriptor(c.Entries)
	return err
}

// ParseDescriptor returns the descriptor of arguments such as tenant=acme.
func ParseDescriptor(entries []string) (rules.Descriptor, error) {
	var d rules.Descriptor
	for _, text := range entries {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form name=value, such as tenant=acme", text)
		}
		d = append(d, rules.Entry{Name: name, Value: value})
	}
	return d, nil
}

// An Explanation says which limits apply to a request, and why others do not, in JSON.
type Explanation struct {
	Applies []limitMatch `json:"applies"`
	Others  []other      `json:"others"`
}

// Only leaves only limits for which may is true, by their names; nil leaves all.
func (e *Explanation) Only(may func(limit string) bool) {
	if may == nil {
		return
	}
	e.Applies = slices.DeleteFunc(e.Applies, func(m limitMatch) bool { return !may(m.Limit) })
	e.Others = slices.DeleteFunc(e.Others, func(o other) bool { return !may(o.Limit) })
}

// limitMatch is a limit that applies to a request.
type limitMatch struct {
	Limit  string `json:"limit"`
	Rate   string `json:"rate"` // in the form of a file
	Why    string `json:"why"`
	Key    string `json:"key"` // of the store
	Shadow bool   `json:"shadow"`
	Quota  bool   `json:"quota,omitempty"` // refuses only if all others with it do
	Lease  string `json:"lease,omitempty"` // of the limit itself, such as 2%
	At     string `json:"at"`

	// A service has these too.
	KeyHash string `json:"key_hash,omitempty"` // what its log shows for the key
	State   *State `json:"state,omitempty"`    // nil if the store does not know it
}

// State is what a service has recorded under a limit and a key.
type State struct {
	Limit        int64 `json:"limit"`
	Remaining    int64 `json:"remaining"`
	RetryAfterMS int64 `json:"retry_after_ms"` // until a unit is free, or the block ends

	Block bool `json:"block,omitempty"` // Limit and Remaining are milliseconds
}

// String returns the columns of the state.
func (s *State) String() string {
	if s == nil {
		return "\t\t"
	}
	left, retry := fmt.Sprintf("%d\t%d", s.Remaining, s.Limit), time.Duration(s.RetryAfterMS)
	if s.Block {
		left = Blocked(retry > 0) + "\t"
	}
	return fmt.Sprintf("%s\t%v", left, retry*time.Millisecond)
}

// Blocked returns what the commands print in place of the units that are left under a block.
func Blocked(blocked bool) string {
	if blocked {
		return "blocked"
	}
	return "not blocked"
}

// other is a limit that does not apply.
type other struct {
	Limit   string `json:"limit"`
	Because string `json:"because"`
	At      string `json:"at"`
}

// Run prints which limits apply to the request, and why others do not.
func (c *Explain) Run(k *kong.Context) error {
	d, err := ParseDescriptor(c.Entries)
	if err != nil {
		return err
	}
	loaded, err := config.Source{Path: c.File}.Load()
	if err != nil {
		return err
	}
	e := Of(loaded, c.Domain, d)
	if c.JSON {
		return writeJSON(k.Stdout, e)
	}
	return c.WriteText(k.Stdout, e)
}

// Of returns the explanation for a request under a configuration.
func Of(c *config.Config, domain string, d rules.Descriptor) Explanation {
	e := Explanation{[]limitMatch{}, []other{}}
	applies := make(map[*rules.Limit]bool)
	for _, m := range c.Set.Match(nil, domain, d) {
		applies[m.Limit] = true
		e.Applies = append(e.Applies, limitMatch{Limit: m.Limit.Name, Rate: m.RateText(),
			Why: m.Why, Key: m.Key, Shadow: m.Limit.Shadow,
			Quota: m.Limit.Quota, Lease: m.Limit.LeaseText(),
			At: m.Limit.At.String()})
	}
	for _, l := range c.Limits() {
		if !applies[l] {
			e.Others = append(e.Others, other{l.Name, because(l, domain, d), l.At.String()})
		}
	}
	return e
}

const ofDomain = "it is of the domain "

// because says why a limit does not apply.
func because(l *rules.Limit, domain string, d rules.Descriptor) string {
	switch {
	case l.Domain == "":
		return l.Mismatch(domain, d)
	case l.Domain != domain:
		return fmt.Sprintf(ofDomain+"%q", l.Domain)
	default:
		return "the entries lead to another limit of the domain, or to none"
	}
}

// domainInWhy is the entry domain in the reason of a rate.
var domainInWhy = regexp.MustCompile(`(^by |^except |, )domain=`)

// WriteText writes the explanation of the request as tables: of a service one with the states of
// limits too.
func (c *Explain) WriteText(w io.Writer, e Explanation) error {
	byFlag := c.Domain != "" && !slices.ContainsFunc(c.Entries,
		func(entry string) bool { return strings.HasPrefix(entry, "domain=") })

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(e.Applies) == 0 {
		fmt.Fprintln(t, "No limit applies.")
	} else {
		fmt.Fprintln(t, "LIMIT\tRATE\tWHY\tKEY")
	}
	states := false
	for _, a := range e.Applies {
		name := terminal.Value(a.Limit)
		if a.Shadow {
			name += " (shadow)"
		}
		if a.Quota {
			name += " (quota)"
		}
		if a.Lease != "" {
			name += " (lease " + a.Lease + ")"
		}
		if byFlag {
			a.Why = domainInWhy.ReplaceAllString(a.Why, "$1--domain=")
		}
		states = states || a.State != nil || a.KeyHash != ""
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", name, terminal.Value(a.Rate),
			terminal.Line(a.Why), terminal.Value(a.Key))
	}
	if states {
		fmt.Fprintln(t, "\nLIMIT\tLEFT\tOF\tNEXT UNIT AFTER\tKEY HASH")
		for _, a := range e.Applies {
			fmt.Fprintf(t, "%s\t%s\t%s\n",
				terminal.Value(a.Limit), a.State, terminal.Value(a.KeyHash))
		}
	}
	if len(e.Others) > 0 {
		fmt.Fprintln(t, "\nDOES NOT APPLY\tBECAUSE")
	}
	for _, o := range e.Others {
		if c.Domain == "" && (strings.HasPrefix(o.Because, ofDomain) ||
			strings.HasPrefix(o.Because, "domain is missing")) {
			o.Because += ": name it with --domain"
		}
		fmt.Fprintf(t, "%s\t%s\n", terminal.Value(o.Limit), terminal.Line(o.Because))
	}
	return t.Flush()
}
