package server

import (
	"errors"
	"strings"

	"github.com/truewindow/ratelimit"
)

// notExecuted are the beginnings of the error replies with which a server refuses a script, or the first write of one: it has written
// nothing. (Once a script has written, servers let it write to the end whatever the memory, the role or the disk.)
var notExecuted = []string{
	"ASK ",
	"BUSY ",
	"CLUSTERDOWN ",
	"DENIED ",
	"ERR Error compiling script",
	"ERR Protocol error",
	"ERR max number of clients reached",
	"ERR unknown command",
	"LOADING ",
	"MASTERDOWN ",
	"MISCONF ",
	"MOVED ",
	"NOAUTH ",
	"NOPERM ",
	"NOREPLICAS ",
	"NOSCRIPT ",
	"OOM ",
	"READONLY ",
	"TRYAGAIN ",
	"WRONGPASS ",
}

// ReplyKind returns what an error reply to a script with this text says of the demands in it: [errors.ErrUnsupported] for keys of several
// slots, [ratelimit.ErrUnavailable] where nothing was recorded, and [ratelimit.ErrOutcomeUnknown] for a script that may have
// broken off after a write.
func ReplyKind(text string) error {
	if strings.HasPrefix(text, "CROSSSLOT ") {
		return errors.ErrUnsupported
	}
	for _, prefix := range notExecuted {
		if strings.HasPrefix(text, prefix) {
			return ratelimit.ErrUnavailable
		}
	}
	return ratelimit.ErrOutcomeUnknown
}
