// Package faults tests what callers get while servers and networks fail. "make faults" writes what
// it measures, and a picture of it, beside docs/faults.md.
package faults

import (
	"fmt"
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	code := servers.Run(m)
	if code == 0 {
		if err := writeFaults(); err != nil {
			fmt.Println("the measurements of faults:", err)
			code = 1
		}
	}
	os.Exit(code)
}
