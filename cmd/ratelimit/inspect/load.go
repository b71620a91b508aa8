// Package inspect has the commands that read the service's configuration and decide nothing.
package inspect

import (
	"regexp"

	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// A config is a configuration file, compiled.
type config struct {
	set    *rules.Set
	limits []*rules.Limit // those that the file has
	// ignored are settings of a file of envoyproxy/ratelimit that change nothing.
	ignored rules.Problems
}

// load reads a configuration file, of the service or of envoyproxy/ratelimit. What is wrong with it
// is an error of type rules.Problems.
func load(path string) (*config, error) {
	if isEnvoy(path) {
		return loadEnvoy(path)
	}
	f, err := rules.Read(path)
	if err != nil {
		return nil, err
	}
	set, err := rules.Compile(f.Limits, nil)
	if err != nil {
		return nil, err
	}
	return &config{set: set, limits: f.Limits}, nil
}

// domainKey is what every file of envoyproxy/ratelimit has, and none of the service.
var domainKey = regexp.MustCompile(`(?m)^["']?domain["']?[ \t]*:`)

// isEnvoy reports whether a file is one of envoyproxy/ratelimit. It is not if it cannot be read.
func isEnvoy(path string) bool {
	files, err := envoyfile.ReadFiles(path)
	return err == nil && domainKey.Match(files[0].Text)
}

func loadEnvoy(path string) (*config, error) {
	files, err := envoyfile.ReadFiles(path)
	if err != nil {
		return nil, err
	}
	domains, err := envoyfile.Read(files, envoyfile.Options{})
	if err != nil {
		return nil, err
	}
	set, err := rules.Compile(domains.Limits(), domains)
	if err != nil {
		return nil, err
	}
	c := &config{set: set, ignored: domains.Ignored()}
	added := make(map[*rules.Limit]bool) // for requests that bring their own rate
	for _, name := range domains.Names() {
		l, _, _ := domains.Find(name, rules.Descriptor{{Name: envoyfile.Overridden}})
		added[l] = true
	}
	for _, l := range domains.Limits() {
		if !added[l] {
			c.limits = append(c.limits, l)
		}
	}
	return c, nil
}
