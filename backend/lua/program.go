package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// A call with one demand has a frame of its own, since most calls are of that kind.
var (
	//go:embed *.lua
	files embed.FS

	oneFrame, manyFrame = luaconst.Source(files, "one.lua"), luaconst.Source(files, "many.lua")
	defineSource        = luaconst.Source(files, "define.lua") // for the second
)

// A Program is the text of a Lua script and its name in EVALSHA. It depends on the algorithms of
// a call only, not on its demands.
type Program struct {
	Source string // Lua 5.1
	SHA    string // SHA-1 of Source in hexadecimal digits
}

// newProgram puts scripts into a frame. Where there are several, each stands in a function, so
// that one that fails when it is defined concerns its own demands only.
func newProgram(frame string, scripts []ratelimit.Script) Program {
	var steps strings.Builder
	switch {
	case len(scripts) > 1:
		steps.WriteString(defineSource)
		for i, s := range scripts {
			const text = "steps[%d] = define(function()\n%s\nreturn step\nend)\n"
			fmt.Fprintf(&steps, text, i+1, s.Source)
		}
	case frame == manyFrame:
		fmt.Fprintf(&steps, "local steps = {}\ndo\n%s\nsteps[1] = step\nend\n", scripts[0].Source)
	default:
		fmt.Fprintf(&steps, "local step1\ndo\n%s\nstep1 = step\nend\n", scripts[0].Source)
	}
	source := strings.Replace(frame, "--STEPS--\n", steps.String(), 1)
	sum := sha1.Sum([]byte(source))
	return Program{Source: source, SHA: hex.EncodeToString(sum[:])}
}
