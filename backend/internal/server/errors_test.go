package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
)

func TestReplyKind(t *testing.T) {
	for text, want := range map[string]error{
		"CROSSSLOT Keys in request don't hash to the same slot":     errors.ErrUnsupported,
		"ERR CROSSSLOT Keys in request don't hash to the same slot": errors.ErrUnsupported,
		"ERR eval/evalsha command keys must be in same slot":        errors.ErrUnsupported,
		"'EVAL' command keys must in same slot":                     errors.ErrUnsupported,
		// of a command in a script, which may have written before
		"CROSSSLOT Keys in request don't hash to the same slot script: 0b, on " +
			"@user_script:9.": driver.ErrOutcomeUnknown,
		"ERR Script attempted to access keys that do not hash to the same slot script: 0b, on " +
			"@user_script:9.": driver.ErrOutcomeUnknown,

		"READONLY You can't write against a read only " +
			"replica.": driver.ErrUnavailable,
		"READONLY You can't write against a read only replica. script: 0a, on " +
			"@user_script:9.": driver.ErrUnavailable,
		"LOADING Redis is loading the dataset in " +
			"memory": driver.ErrUnavailable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to " +
			"'no'.": driver.ErrUnavailable,
		"CLUSTERDOWN The cluster is " +
			"down": driver.ErrUnavailable,
		"TRYAGAIN Multiple keys request during rehashing of " +
			"slot": driver.ErrUnavailable,
		"OOM command not allowed when used memory > 'maxmemory'. script: 0a, on " +
			"@user_script:9.": driver.ErrCapacity,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN " +
			"NOSAVE.": driver.ErrUnavailable,
		"NOPERM User limiter has no permissions to run the 'evalsha' " +
			"command": driver.ErrUnavailable,
		"NOAUTH Authentication " +
			"required.": driver.ErrUnavailable,
		"WRONGPASS invalid username-password pair or user is " +
			"disabled.": driver.ErrUnavailable,
		"NOREPLICAS Not enough good replicas to " +
			"write.": driver.ErrUnavailable,
		"MISCONF Errors writing to the AOF file: No space left on " +
			"device": driver.ErrUnavailable,
		"NOSCRIPT No matching " +
			"script.": driver.ErrUnavailable,
		"MOVED 12182 127.0.0.1:7002": driver.ErrUnavailable,
		"ASK 12182 127.0.0.1:7002":   driver.ErrUnavailable,
		"ERR max number of clients " +
			"reached": driver.ErrUnavailable,
		"ERR Protocol error: unauthenticated multibulk " +
			"length": driver.ErrUnavailable,
		"ERR unknown command 'evalsha', with args beginning with: '0a' " +
			"'1'": driver.ErrUnavailable,
		"ERR Error compiling script (new function): user_script:1: '=' expected near " +
			"'is'": driver.ErrUnavailable,
		"ERR The user executing the script can't run this command or subcommand script: 0a, on " +
			"@u:1.": driver.ErrUnavailable,
		"ERR ACL failure in script: User limiter has no permissions to run the 'del' " +
			"command": driver.ErrOutcomeUnknown,
		"ERR user_script:9: attempt to index a nil value script: 0a, on " +
			"@user_script:9.": driver.ErrUnavailable,
		"ERR user_script:9: attempt to index a nil value script: 0b, on " +
			"@user_script:9.": driver.ErrOutcomeUnknown,
		"ERR user_script:9: attempt to index a nil value script: on " +
			"@user_script:9.": driver.ErrUnavailable,
		"ERR after a write: NOPERM a key script: on @user_script:9.":   driver.ErrOutcomeUnknown,
		"ERR a key with script: on @user_script:9. and something else": driver.ErrOutcomeUnknown,
		"ERR after a write: NOPERM ACL failure in script: User limiter has no permissions to run " +
			"the 'setrange' command script: 0a, on " +
			"@user_script:9.": driver.ErrOutcomeUnknown,
		"OOMPH": driver.ErrOutcomeUnknown,
		"":      driver.ErrOutcomeUnknown,
	} {
		if got := replyKind(text, lua.Program{SHA: "0a"}); got != want {
			t.Errorf("replyKind(%q) = %v, want %v", text, got, want)
		}
	}
}

// replying is a client all of whose errors are replies of a server.
type replying struct{ Client }

func (replying) ErrorReply(err error) (string, bool) { return err.Error(), true }

// FuzzErrorReply: no error reply is a decision, and no error has a key that the reply repeats.
func FuzzErrorReply(f *testing.F) {
	for _, code := range append(notExecuted, "CROSSSLOT ", "WRONGTYPE ", "") {
		f.Add(code, " script: 0a, on @user_script:9.", "user:42")
	}
	f.Add("ERR unknown command 'evalsha', with args beginning with: '0123' '1' '", "' ''",
		"user:42")
	f.Add("", "", "a}b{c%d\r\n")
	keys, err := keyspace.New("rl:", nil)
	if err != nil {
		f.Fatal(err)
	}
	s := &servers{client: replying{}, keys: keys, words: Words{Package: "fuzzed"}}
	f.Fuzz(func(t *testing.T, before, after, key string) {
		program := lua.Program{SHA: "0a"}
		kind := replyKind(before+after, program)
		if kind != errors.ErrUnsupported && kind != driver.ErrUnavailable &&
			kind != driver.ErrOutcomeUnknown {
			t.Fatalf("%q is %v", before+after, kind)
		}
		if key == "" {
			t.Skip("CheckTake refuses it")
		}
		stored := keys.Key(demandOn("\x02"+key+"\x02", 1)) // nothing else in the text is like it
		for _, sent := range []bool{false, true} {
			err := s.failure(errors.New(before+stored+after), sent, program)
			if !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, errors.ErrUnsupported) {
				t.Fatalf("%q is %v", before, err)
			}
			if !strings.Contains(before, "%02") && strings.Contains(err.Error(), "%02") {
				t.Fatalf("a key in %q", err)
			}
		}
	})
}
