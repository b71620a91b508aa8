package daemon

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
	"github.com/truewindow/ratelimit/internal/algorithms"
	"github.com/truewindow/ratelimit/internal/replay"
)

type replayCmd struct {
	Log        []string          `required:"" sep:"none" placeholder:"FILE"`
	Limit      []ratelimit.Limit `required:"" placeholder:"MAX/WINDOW"`
	Algorithm  []string          `default:"log" placeholder:"NAME"`
	Format     replay.Format     `placeholder:"FORMAT"`
	KeyField   string            `placeholder:"FIELD"`
	TimeField  string            `placeholder:"FIELD"`
	UnitsField string            `placeholder:"FIELD"`

	TrustedProxy []netip.Prefix `placeholder:"NETWORK"`

	SVG      string `name:"svg" placeholder:"FILE"`
	JSON     bool   `name:"json"`
	Progress bool
}

// Validate is called by kong when it has parsed the command line.
func (c *replayCmd) Validate() error {
	options, err := c.options()
	if err != nil {
		return err
	}
	return options.Validate()
}

func (c *replayCmd) options() (o replay.Options, err error) {
	o = replay.Options{Format: c.Format, KeyField: c.KeyField, TimeField: c.TimeField,
		UnitsField: c.UnitsField, TrustedProxies: c.TrustedProxy}
	for _, limit := range c.Limit {
		for _, name := range c.Algorithm {
			named, err := algorithms.ByName(name)
			if err != nil {
				return o, err
			}
			o.Proposals = append(o.Proposals,
				replay.Proposal{Name: name, Algorithm: named.New(limit)})
		}
	}
	return o, nil
}

// Run replays the logs and prints the report. If ctx ends first or reading fails, it reports what
// was read until then and returns an error.
func (c *replayCmd) Run(ctx context.Context, k *kong.Context, stderr io.Writer) error {
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
	if c.Progress || isTerminal(stderr) {
		options.Progress = new(replay.Progress)
		done = showProgress(stderr, logs, options.Progress)
	}
	report, err := replay.Run(ctx, logs.readers(), options)
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
