package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// A call with one demand has a frame of its own, since most calls are of that kind.
var (
	//go:embed *.lua
	files embed.FS

	oneFrame, manyFrame = newFrame("one.lua"), newFrame("many.lua")
	defineFrame         = newFrame("define.lua") // the steps of manyFrame
)

// What costs time in the Lua of these servers, by the benchmark Command:
//
//   - Each string that Lua gets is hashed whole, so read few bytes.
//   - Each function is created anew in each call, also if it is not called, and each outer variable
//     adds to that: the step of the log is one function, and create others where they are needed.
//   - A number as an argument of redis.call costs little; string.format('%.0f') costs as much as a
//     command. A table as a reply costs more than a string.
//   - A call such as math.min or type costs as much as ten instructions of Lua.
//   - A field of struct costs the same whatever its width, so two small numbers share one; a small
//     table costs more than several fields.
//   - Locals that take the results of unpack at once, one assignment a line, and the likely branch
//     first are faster.

// A frame is a text around steps.
type frame struct {
	plain string
	holds string // if one of the steps has holds
}

// newFrame returns the frame of a file, whose code for calls with holds is in long comments: from
// --[[ to ]], or from a line with --[[ to one with --]].
func newFrame(name string) *frame {
	var plain, holds strings.Builder
	rest, found := luaconst.Source(files, name), true
	for found {
		var outside, inside string
		outside, rest, found = strings.Cut(rest, "--[[")
		end := "]]"
		if strings.HasPrefix(rest, "\n") {
			rest, end = rest[1:], "--]]\n"
		}
		inside, rest, _ = strings.Cut(rest, end)
		plain.WriteString(outside)
		holds.WriteString(outside + inside)
	}
	return &frame{plain.String(), holds.String()}
}

// A Program is the text of a Lua script and its name in EVALSHA. It depends on the algorithms of a
// call, and on whether it has one demand or several. Calls of k algorithms of this module have at
// most 3k-1 programs, whatever comes together.
type Program struct {
	Source string // Lua 5.1
	SHA    string // SHA-1 of Source in hexadecimal digits
}

// afterWrite begins the text of an error in one.lua that came after a write.
const afterWrite = "after a write: "

// ofUnnamed matches the error of a script that ran on Valkey 9.1, which leaves out its name.
var ofUnnamed = regexp.MustCompile(` script: on @user_script:\d+\.$`)

// Failure returns the class of an error reply to p with this text: [driver.ErrUnavailable] if
// the script failed before it wrote anything, [driver.ErrOutcomeUnknown] if it failed later, and
// nil if the text is not that of a script that ran.
func (p Program) Failure(text string) error {
	switch {
	case !strings.Contains(text, " script: "+p.SHA) && !ofUnnamed.MatchString(text):
		return nil
	case strings.Contains(text, afterWrite):
		return driver.ErrOutcomeUnknown
	}
	return driver.ErrUnavailable
}

// text returns the text of f around scripts.
func (f *frame) text(scripts []driver.Script) string {
	if slices.ContainsFunc(scripts, func(s driver.Script) bool { return s.Holds }) {
		return f.holds
	}
	return f.plain
}

// newProgram puts scripts into a frame. If there are several, each is in a function, so that an
// error in its definition fails only its own demands.
func newProgram(f *frame, scripts []driver.Script) Program {
	var steps strings.Builder
	switch s := scripts[0]; {
	case len(scripts) > 1:
		var choice strings.Builder
		word := "if"
		for i, s := range scripts {
			const branch = "%s number == %d then\nscript = function()\n%s\nreturn step\nend\n"
			fmt.Fprintf(&choice, branch, word, i+1, s.Source)
			if s.Holds {
				fmt.Fprintf(&choice, "suffix = '%s'\n", suffix(s))
			}
			word = "elseif"
		}
		choice.WriteString("end\n")
		text := defineFrame.text(scripts)
		steps.WriteString(strings.Replace(text, "--SCRIPTS--\n", choice.String(), 1))
	case f == manyFrame:
		fmt.Fprintf(&steps, "local steps, define = {}\ndo\n%s\nsteps[1] = step\nend\n", s.Source)
		if s.Holds {
			fmt.Fprintf(&steps, "held[steps[1]] = '%s'\n", suffix(s))
		}
	default:
		fmt.Fprintf(&steps, "local step1\ndo\n%s\nstep1 = step\nend\n", s.Source)
	}
	source := strings.Replace(f.text(scripts), "--STEPS--\n", steps.String(), 1)
	sum := sha1.Sum([]byte(source))
	return Program{Source: source, SHA: hex.EncodeToString(sum[:])}
}
