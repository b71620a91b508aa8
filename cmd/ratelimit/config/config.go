// Package config loads the configuration of the service: its own files, and those of
// envoyproxy/ratelimit.
package config

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/cmd/ratelimit/xds"
)

// A Source is where the configuration is.
type Source struct {
	// Path is a file of the service or of envoyproxy/ratelimit, or a directory with files of the
	// latter. It is empty if Runtime or XDS is set.
	Path    string
	Runtime *envoyfile.Runtime
	XDS     *xds.Settings
	Options envoyfile.Options // for files of envoyproxy/ratelimit, and for XDS
}

// String returns the file or directory, or the server of xDS, or nothing without any.
func (s Source) String() string {
	switch {
	case s.XDS != nil:
		return "xds:" + s.XDS.Server
	case s.Runtime != nil:
		return s.Runtime.Directory()
	}
	return s.Path
}

// A Config is what was loaded.
type Config struct {
	Set     *rules.Set
	File    *rules.File        // of the service; nil for files of envoyproxy/ratelimit
	Domains *envoyfile.Domains // of envoyproxy/ratelimit; nil for a file of the service
	// Follow has the paths and patterns of what was read, and of what would be, or the server of
	// xDS. It is also there after an error.
	Follow []string
}

// Load reads and compiles the files. What is wrong with them is an error of type [rules.Problems].
// After an error the Config has only Follow.
//
// From a server of xDS it gets them once, within 10 seconds.
func (s Source) Load() (*Config, error) {
	if s.XDS != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r, err := xds.Fetch(ctx, *s.XDS)
		if ctx.Err() != nil {
			err = fmt.Errorf("nothing came within 10s for the node %q", s.XDS.Node)
		}
		if err != nil {
			return &Config{Follow: []string{s.String()}}, fmt.Errorf("%v: %w", s, err)
		}
		return s.Resources(r)
	}
	if s.Runtime != nil {
		return s.directory(*s.Runtime)
	}
	if info, err := os.Stat(s.Path); err == nil && info.IsDir() {
		return s.directory(envoyfile.Runtime{Root: s.Path})
	}
	files, err := envoyfile.ReadFiles(s.Path)
	if err == nil && isEnvoy(files[0].Text) {
		return s.envoy(files, s.Path)
	}
	f, err := rules.Read(s.Path) // which reports an unreadable file too
	c := &Config{Follow: []string{s.Path}}
	if f != nil {
		c.Follow = f.Paths
	}
	if err == nil {
		c.File, c.Set = f, f.Set
	}
	return c, err
}

// Settings returns c without its limits, which take much more memory than all else.
func (c *Config) Settings() *Config {
	settings := &Config{Follow: c.Follow}
	if c.File != nil {
		f := *c.File
		f.Set = nil
		settings.File = &f
	}
	return settings
}

// domainKey is what every file of envoyproxy/ratelimit has, and none of the service.
var domainKey = regexp.MustCompile(`(?m)^["']?domain["']?[ \t]*:`)

func isEnvoy(text []byte) bool { return domainKey.Match(text) }

// depth is how deep below the directory of a Runtime new files are noticed.
const depth = 4

func (s Source) directory(r envoyfile.Runtime) (*Config, error) {
	var follow []string
	for i, pattern := 0, r.Directory(); i < depth; i++ {
		pattern = filepath.Join(pattern, "*")
		follow = append(follow, pattern)
	}
	files, err := r.ReadFiles()
	if err == nil && len(files) == 0 {
		err = errors.New("there are no files in " + r.Directory())
	}
	if err != nil {
		return &Config{Follow: follow}, err
	}
	return s.envoy(files, follow...)
}

// Resources is Load of what a server of xDS has sent.
func (s Source) Resources(r xds.Response) (*Config, error) {
	var files []envoyfile.File
	for _, resource := range r.Resources {
		files = append(files, envoyfile.FileOf(resource))
	}
	c, err := s.envoy(files, s.String())
	var problems rules.Problems
	if errors.As(err, &problems) {
		const most = 100 // of thousands the first are enough, and each path costs by the file
		for i, p := range problems[:min(len(problems), most)] {
			problems[i].Text += envoyfile.Path(files, p.At)
		}
	}
	return c, err
}

func (s Source) envoy(files []envoyfile.File, follow ...string) (*Config, error) {
	c := &Config{Follow: follow}
	domains, err := envoyfile.Read(files, s.Options)
	if err != nil {
		return c, err
	}
	if c.Set, err = rules.Compile(domains.Limits(), domains); err == nil {
		c.Domains = domains
	}
	return c, err
}

// Limits returns the limits that the files have.
func (c *Config) Limits() []*rules.Limit {
	if c.Domains == nil {
		return c.Set.Limits()
	}
	added := make(map[*rules.Limit]bool) // for requests that bring their own rate
	for _, name := range c.Domains.Names() {
		l, _, _ := c.Domains.Find(name, rules.Descriptor{{Name: envoyfile.Overridden}})
		added[l] = true
	}
	var limits []*rules.Limit
	for _, l := range c.Set.Limits() {
		if !added[l] {
			limits = append(limits, l)
		}
	}
	return limits
}

// Warnings lists settings that have no effect, or less than they say: no limits at all, limits of
// calls in flight, which some protocols leave out, those that probably misspell an entry or match
// no request at /v1/check, exceptions that are over, files without values, settings of files of
// envoyproxy/ratelimit that change nothing, limits with a policy beside local decisions, limits of
// too few units for their lease, and those of which none of so many instances has a share.
// Instances are the processes that decide locally while the store is unavailable; 0 if they do not.
func (c *Config) Warnings(instances int) (warnings rules.Problems) {
	if c.Domains != nil {
		for _, p := range c.Domains.Ignored() {
			warnings = append(warnings, rules.Problem{At: p.At, Text: "ignored: " + p.Text})
		}
	}
	warnings = append(warnings, c.without()...)
	for _, l := range c.Limits() {
		if when, key, ok := l.Misspelt(); ok {
			warnings = append(warnings, rules.Problem{At: l.At, Text: fmt.Sprintf("%q needs the "+
				"entries %q and %q: is one of them misspelt?", l.Name, when, key)})
		}
		warnings = append(warnings, l.Unmatched()...)
		warnings = append(warnings, l.Idle(time.Now())...)
		if l.Algorithm == algorithms.InFlight {
			warnings = append(warnings, rules.Problem{At: l.At, Text: fmt.Sprintf("%q limits "+
				"calls in flight: it does not apply at /v1/check and to calls of Envoy, which do "+
				"not say when a call ends", l.Name)})
		}
		if instances > 0 && l.OnFailure != "" {
			warnings = append(warnings, rules.Problem{At: l.At, Text: fmt.Sprintf("%q has "+
				"on_failure: %s, which counts only where the service cannot decide locally",
				l.Name, l.OnFailure)})
		}
	}
	warnings = append(warnings, c.withoutLease()...)
	return append(warnings, c.withoutShare(instances)...)
}

// withoutLease returns a warning for each limit with a rate of too few units for its lease.
func (c *Config) withoutLease() (warnings rules.Problems) {
	warned := make(map[*rules.Limit]bool)
	for _, v := range c.Set.Variants() {
		l := v.Limit
		if l.Lease == nil || *l.Lease == 0 || warned[l] || v.Algorithm == nil {
			continue
		}
		if least := math.Ceil(16 / *l.Lease); float64(v.Algorithm.Limit().Max) < least {
			warned[l] = true
			warnings = append(warnings, rules.Problem{At: l.At, Text: fmt.Sprintf("%q has lease: "+
				"%s, but %s (%s) is decided by the store: with that lease, limits have leases "+
				"from %.0f units on", l.Name, l.LeaseText(), v.RateText(), v.Why, least)})
		}
	}
	return warnings
}

// without returns a warning if there are no limits, and for each domain of envoyproxy/ratelimit
// that has none: a file of something else, or one that was emptied, is read without an error.
func (c *Config) without() (warnings rules.Problems) {
	if c.Domains == nil {
		if len(c.Set.Limits()) == 0 {
			warnings = append(warnings, rules.Problem{At: rules.Position{File: c.Follow[0]},
				Text: "there are no limits: every request is admitted"})
		}
		return warnings
	}
	if len(c.Domains.Names()) == 0 { // of a server of xDS: files have a domain each
		return rules.Problems{{At: rules.Position{File: c.Follow[0]},
			Text: "there are no limits: every request is admitted"}}
	}
	for _, name := range c.Domains.Empty() {
		warnings = append(warnings, rules.Problem{At: c.Domains.At(name), Text: fmt.Sprintf(
			"the domain %q has no limits: every request is admitted", name)})
	}
	return warnings
}

// withoutShare returns a warning for each limit with a rate of fewer units than instances.
func (c *Config) withoutShare(instances int) (warnings rules.Problems) {
	warned := make(map[*rules.Limit]bool)
	for _, v := range c.Set.Variants() {
		l := v.Limit
		if warned[l] || v.Algorithm == nil || l.Algorithm == algorithms.Block ||
			v.Algorithm.Limit().Max >= int64(instances) {
			continue
		}
		warned[l] = true
		warnings = append(warnings, rules.Problem{At: l.At, Text: fmt.Sprintf("none of %d "+
			"instances has a share of %q with %s (%s): while the store is unavailable, they "+
			"decide no request for it", instances, l.Name, v.RateText(), v.Why)})
	}
	return warnings
}
