package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
)

// Command is "ratelimit-replay", for package kong.
type Command struct {
	Log        []string          `required:"" sep:"none" placeholder:"FILE"`
	Limit      []ratelimit.Limit `required:"" placeholder:"MAX/WINDOW"`
	Algorithm  []string          `default:"log" placeholder:"NAME"`
	Format     Format            `placeholder:"FORMAT"`
	KeyField   string            `placeholder:"FIELD"`
	TimeField  string            `placeholder:"FIELD"`
	UnitsField string            `placeholder:"FIELD"`

	TrustedProxy []netip.Prefix `placeholder:"NETWORK"`

	SVG      string `name:"svg" placeholder:"FILE"`
	JSON     bool   `name:"json"`
	Progress bool
}

// Help has the help of each flag, by name.
var Help = map[string]string{
	"log": "The log to replay, plain or compressed with gzip or bzip2; - is standard input. " +
		"Repeat the flag to merge several by time.",
	"limit": "A limit to try, such as 100/1m. Repeat the flag, or separate by commas, to try " +
		"several, each by itself.",
	"algorithm": "An algorithm to try with each limit: ${algorithms}. Repeat the flag, or " +
		"separate by commas. Default: ${default}.",
	"format": "Format of the lines: json, common or combined. By default the first line " +
		"decides.",
	"key-field": "The field to limit by. In JSON lines: a field, or a path such as " +
		"request.remote_ip; by default key. In access logs: client, user, method, path, " +
		"status, bytes, referer, agent or forwarded, which is X-Forwarded-For between " +
		"quotation marks after the agent; by default client. Addresses count as in package " +
		"clientip: of a list the right-most, and IPv6 by /64. The name of a host is a key of " +
		"its own, and lines with keys above 1 KiB are skipped.",
	"trusted-proxy": "Addresses, such as 10.0.0.2/32, that do not count in a list of " +
		"addresses. Repeat the flag, or separate by commas.",
	"time-field": "The field of JSON lines that has the time: RFC 3339, as in access logs, " +
		"or Unix time in seconds, ms, µs or ns. Without a zone it is UTC. Default: time.",
	"units-field": "The field that has the units of a request. By default each takes 1 unit.",
	"svg":         "Also draw the report as SVG to FILE.",
	"json":        "Print the report as JSON.",
	"progress": "Show progress on standard error, even if that is not a terminal. After an " +
		"interrupt (Ctrl-C) the report is of what was read, and the exit code is 1.",
}

// Validate is called by kong when it has parsed the command line.
func (c *Command) Validate() error {
	options, err := c.options()
	if err != nil {
		return err
	}
	return options.Validate()
}

func (c *Command) options() (o Options, err error) {
	o = Options{Format: c.Format, KeyField: c.KeyField, TimeField: c.TimeField,
		UnitsField: c.UnitsField, TrustedProxies: c.TrustedProxy}
	for _, limit := range c.Limit {
		for _, name := range c.Algorithm {
			named, err := algorithms.ByName(name)
			if err != nil {
				return o, err
			}
			o.Proposals = append(o.Proposals,
				Proposal{Name: name, Algorithm: named.New(limit)})
		}
	}
	return o, nil
}

// Run replays the logs and prints the report. If ctx ends first or reading fails, it reports what
// was read until then and returns an error.
func (c *Command) Run(ctx context.Context, k *kong.Context, stderr io.Writer) error {
	options, err := c.options()
	if err != nil {
		return err
	}
	logs, err := openLogs(c.Log)
	defer logs.close()
	if err != nil {
		return err
	}
	var svg io.WriteCloser
	if c.SVG != "" {
		if svg, err = os.Create(c.SVG); err != nil {
			return err
		}
	}
	done := func() {}
	if c.Progress || terminal.Is(stderr) {
		options.Progress = new(Progress)
		done = showProgress(stderr, logs, options.Progress)
	}
	report, err := Run(ctx, logs.readers(), options)
	done()
	switch {
	case report == nil && ctx.Err() != nil:
		return errors.New("interrupted before anything was read")
	case report == nil:
		return err
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted after %d lines", report.Input.Lines)
	}
	if svg != nil {
		err = errors.Join(report.WriteSVG(svg), svg.Close(), err)
	}
	if !c.JSON {
		return errors.Join(report.WriteText(k.Stdout), err)
	}
	encoder := json.NewEncoder(k.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return errors.Join(encoder.Encode(report), err)
}
