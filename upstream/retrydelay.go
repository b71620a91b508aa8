package upstream

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// RetryDelay is an [Options.BodyWait] for the errors of Google's APIs, such as Gemini's: it returns
// the retryDelay of a google.rpc.RetryInfo among the details, also if the error is in an array, as
// in an answer that was to be a stream.
func RetryDelay(_ int, body []byte) (time.Duration, bool) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		_, _ = decoder.Token() // what follows is decoded alone, since the array may not end
	}
	var answer struct {
		Error struct{ Details []json.RawMessage }
	}
	if decoder.Decode(&answer) != nil {
		return 0, false
	}
	for _, detail := range answer.Error.Details {
		var info struct {
			Type       string `json:"@type"`
			RetryDelay string `json:"retryDelay"`
		}
		if json.Unmarshal(detail, &info) != nil ||
			!strings.HasSuffix(info.Type, "/google.rpc.RetryInfo") {
			continue
		}
		if wait, err := time.ParseDuration(info.RetryDelay); err == nil && wait >= 0 {
			return wait, true
		}
	}
	return 0, false
}
