package inspect

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// Validate is "ratelimit validate", for package kong.
type Validate struct {
	Files   []string `arg:"" optional:"" name:"file" sep:"none" help:"A file, or Envoy's variables"`
	Against string   `placeholder:"OLD"`
	JSON    bool     `name:"json"`
}

// ValidateHelp has the help of each flag, by name.
var ValidateHelp = map[string]string{
	"against": "The file that is in force. A limit whose count would begin at zero in place of " +
		"going on is a warning.",
	"json": "Print the result as JSON.",
}

// checked is the result for one file in JSON.
type checked struct {
	File     string    `json:"file"`
	Limits   int       `json:"limits"` // 0 if there are problems
	Problems []problem `json:"problems"`
	Warnings []problem `json:"warnings"` // see [config.Config.Warnings]
}

// sources returns where the configurations are: in the files, or without any where variables of
// envoyproxy/ratelimit say.
func (c *Validate) sources() (sources []config.Source, err error) {
	for _, path := range c.Files {
		sources = append(sources, config.Source{Path: path})
	}
	if len(sources) > 0 {
		return sources, nil
	}
	s, _, err := envoy.ReadEnvironment(os.Environ())
	switch {
	case err != nil:
		return nil, err
	case s.Files == nil && s.XDS == nil:
		return nil, errors.New("name a file; without one, CONFIG_TYPE or RUNTIME_ROOT has to say " +
			"where envoyproxy/ratelimit has its configuration")
	}
	return []config.Source{{Runtime: s.Files, XDS: s.XDS, Options: s.FileOptions}}, nil
}

// Run prints all problems of the files, or how many limits each has. It returns an error if there
// are problems.
func (c *Validate) Run(k *kong.Context) error {
	var old *config.Config
	if c.Against != "" {
		var err error
		if old, err = (config.Source{Path: c.Against}).Load(); err != nil {
			return fmt.Errorf("--against: %w", err)
		}
	}
	sources, err := c.sources()
	if err != nil {
		return err
	}
	count := 0
	var results []checked
	for _, source := range sources {
		var warnings rules.Problems
		path := source.String()
		loaded, err := source.Load()
		r := checked{File: path, Problems: problemsOf(path, err), Warnings: []problem{}}
		count += len(r.Problems)
		if err == nil {
			warnings = warningsOf(loaded)
			if old != nil {
				warnings = append(warnings, loaded.StoreRestarts(old)...)
				warnings = append(warnings, loaded.Restarts(old)...)
			}
			r.Limits, r.Warnings = len(loaded.Limits()), inJSON(warnings)
		}
		results = append(results, r)
		switch {
		case c.JSON:
		case err != nil:
			fmt.Fprintln(k.Stdout, linesOf(err))
		default:
			for _, p := range warnings {
				fmt.Fprintln(k.Stdout, terminal.Line(fmt.Sprintf("%v: warning: %s", p.At, p.Text)))
			}
			fmt.Fprintf(k.Stdout, "%s: %s\n", terminal.Line(path), counted(r.Limits, "limit"))
		}
	}
	if c.JSON {
		if err := writeJSON(k.Stdout, results); err != nil {
			return err
		}
	}
	if count > 0 {
		return fmt.Errorf("%s", counted(count, "problem"))
	}
	return nil
}

// linesOf returns an error as it can be printed: of problems a line each.
func linesOf(err error) string {
	var problems rules.Problems
	if !errors.As(err, &problems) {
		return terminal.Lines(err.Error())
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = terminal.Line(p.String())
	}
	return strings.Join(lines, "\n")
}

// warningsOf returns the warnings of a file as it is, without flags.
func warningsOf(c *config.Config) rules.Problems {
	if c.File == nil || c.File.OnFailure.Value != "local" {
		return c.Warnings(0)
	}
	instances := c.File.Instances.Value
	warnings := c.Warnings(instances)
	if instances == 0 {
		warnings = append(warnings, rules.Problem{At: c.File.OnFailure.At,
			Text: "on_failure: local needs instances, the number of processes: the service does " +
				"not start without it or --instances"})
	}
	return warnings
}

// counted returns "1 limit" or "2 limits".
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}
