package command

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
)

// explainCmd is "ratelimit explain".
type explainCmd struct {
	inspect.Explain `embed:""`

	TokenFile string `env:"RATELIMIT_TOKEN_FILE" placeholder:"FILE"`
}

// Run explains what a file says or, with the URL of a service, what the service says.
func (c *explainCmd) Run(ctx context.Context, k *kong.Context) error {
	if !strings.HasPrefix(c.File, "http://") && !strings.HasPrefix(c.File, "https://") {
		return c.Explain.Run(k)
	}
	entries, err := descriptorBody(c.Entries)
	if err != nil {
		return err
	}
	service := client{URL: c.File, TokenFile: c.TokenFile}
	_, text, err := service.answer(ctx, "/v1/explain",
		map[string]any{"descriptor": entries, "domain": c.Domain})
	if err != nil {
		return err
	}
	if c.JSON {
		_, _ = k.Stdout.Write(text)
		return nil
	}
	var e inspect.Explanation
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	return c.WriteText(k.Stdout, e)
}
