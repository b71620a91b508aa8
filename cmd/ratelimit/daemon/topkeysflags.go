package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit/topkeys"
)

var errPlain = errors.New("--top-keys-plain needs --top-keys=N")

func (c *serveCmd) checkTopKeys() error {
	switch {
	case c.TopKeys < 0 || c.TopKeys > topkeys.MaxSize:
		return fmt.Errorf("--top-keys=%d is not between 0 and %d", c.TopKeys, topkeys.MaxSize)
	case c.TopKeys == 0 && c.TopKeysPlain:
		return errPlain
	}
	return nil
}

// newTopKeys returns the topKeys of the command line, with now as its clock, or nil.
func (c *serveCmd) newTopKeys(now func() time.Time) (*topKeys, error) {
	if c.TopKeys == 0 {
		return nil, nil
	}
	sketch, err := topkeys.New(&topkeys.Options{
		Size: c.TopKeys, Plain: c.TopKeysPlain, Now: now})
	if err != nil {
		return nil, err
	}
	return &topKeys{sketch, c.TopKeysPlain}, nil
}
