// Package command is the command ratelimit, which serves rate-limit decisions over HTTP and gRPC
// (package daemon), and checks and explains files of limits (package inspect). A program that calls
// [Main] is that command with the stores that it imports; cmd/ratelimit imports all stores of the
// module github.com/truewindow/ratelimit.
//
//	ratelimit serve --limit 10/1s --store redis://localhost:6379 --on-failure closed
//	ratelimit validate limits.yaml
//	ratelimit explain limits.yaml tenant=acme path=/v1/chat
//	ratelimit take --url http://localhost:8080 tenant=acme
//	ratelimit top --url http://localhost:8080
//	ratelimit ready
//	ratelimit raise --file raises.yaml --limit units --max 5000/1m --for 24h tenant=acme
//
// "ratelimit serve --help" lists the flags, each of which has an environment variable.
//
//	POST /v1/decide    {"key":"user:42","n":1}  take n units, or 1: 200, or 429 with Retry-After;
//	                                            with "hold_ms", hold them: the answer has an id
//	POST /v1/peek      {"key":"user:42","n":1}  whether decide would admit n units: 200
//	POST /v1/settle    {"id":"…","used":1}      end what the id holds, and record what was used
//	POST /v1/renew     {"id":"…"}               hold longer; with "total", that many units: 200
//	POST /v1/force                              record units even beyond a limit: 200
//	POST /v1/block                              block a key for a time: 200
//	POST /v1/reset     {"key":"user:42"}        delete what is recorded and held for the key: 204
//	any  /v1/check                              forward auth: decide for a proxy: 200, or 429
//	POST /v1/explain                            which limits apply to a descriptor: 200
//	GET  /v1/openapi.yaml                       a description of the requests (OpenAPI 3.1)
//	GET  /v1/top-keys                           the keys that are refused most, with --top-keys=N
//	GET  /dashboard/                            the page of limits and keys
//	GET  /metrics                               metrics for Prometheus
//	GET  /healthz                               200 while the process is up
//	GET  /readyz                                200 while it should get requests
//
// Instead of a key, decide and peek take descriptors, such as {"descriptor":{"tenant":"acme"}},
// which are decided under all limits of --config that match them, or claims: a list of keys and
// units under limits of --limit, of --in-flight (calls in flight) and of --block (blocked
// keys), which are admitted together or not at all. The daemon does not keep what is held: any
// process with the same store and limits can settle an id, once. docs/daemon.md of the module
// describes each request, with an example.
//
// The daemon serves the host names localhost, the host of --addr and those of --host, and IP
// addresses. A request for another host gets 421, except at /v1/check, so that a web site that
// makes its own name resolve to this machine does not reach the rest (DNS rebinding). HTTP/1.0
// without a host is answered, since no browser sends it.
//
// All other answers are problem details (RFC 9457), among them 400 and 413 for a body that is
// wrong, 422 for more units than a limit ever admits, and 503 for a request that is undecided
// because the store is unavailable. The type of the 503 says whether the units may have been
// recorded (ErrOutcomeUnknown) or were not.
//
// --store is a URL for [github.com/truewindow/ratelimit/backend.Open]. Package serverstore
// documents those of servers, and "memory:" has the parameter max-keys, as in
// memory:?max-keys=100000.
//
// The daemon starts even if its server is unavailable, and keeps running when the server fails.
// Until the server recovers, --on-failure says how requests are answered: with 503 (closed), with
// 200 whatever the limit (open; the source is "open", and of the numbers only limit is known), or
// by each process within its share of the limit (local; the source is "local"). After 20 failures
// in a row the daemon tries the server only once in 500ms, so that requests do not wait for it.
//
// A limit without a name has its window as its name.
//
// Everyone who reaches the daemon may decide. Force, block and reset need a bearer token of
// --write-token-file, and without that file they are refused. What reads needs a token of
// --read-token-file if there is one.
//
// The daemon does not start if the server is of the wrong type or refuses the user. On SIGINT and
// SIGTERM it is not ready any more, answers for as long as --drain says, and ends when the requests
// in flight have been answered, or 10s later. Files are read again when they change, and on SIGHUP.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/cmd/internal/version"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/daemon"
	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
	"github.com/truewindow/ratelimit/cmd/ratelimit/raise"
)

// Exit codes of run.
const (
	exitOK      = 0
	exitError   = 1 // the command failed
	exitUsage   = 2 // the command line or the environment is wrong
	exitRefused = 3 // take or peek: the limits refuse it
)

// commandLine is what kong parses: one field for each command, whose type has a Run method.
type commandLine struct {
	Serve    daemon.Serve     `cmd:"" envprefix:"RATELIMIT_" help:"Serve decisions."`
	Validate inspect.Validate `cmd:"" help:"Print all problems of configuration files."`
	Explain  explainCmd       `cmd:"" help:"Print which limits apply to a request, and why."`
	Take     takeCmd          `cmd:"" help:"Take or hold units; exit with 3 if they are refused."`
	Peek     peekCmd          `cmd:"" help:"Say what take would, and take nothing."`
	Ready    readyCmd         `cmd:"" help:"Ask a service whether it is ready; exit with 1 if not."`
	Top      topCmd           `cmd:"" help:"Show the busiest limits and the most refused keys."`
	Settle   settleCmd        `cmd:"" help:"End what an id holds, and record what was used."`
	Block    blockCmd         `cmd:"" help:"Block a key for a time."`
	Reset    resetCmd         `cmd:"" help:"Delete what is recorded and held for a key."`
	Raise    raise.Raise      `cmd:"" help:"Write an exception that ends into an included file."`
	Version  kong.VersionFlag `help:"Print the version and exit."`
}

// Main runs the command with the arguments and the environment of the process, and ends the
// process.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is Main without the process: it returns the exit code when the command has ended or ctx has.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	done := false // kong calls Exit after --help and --version, and continues if that returns
	cl := commandLine{Serve: daemon.Serve{Stdout: stdout}}
	parser, err := kong.New(&cl,
		kong.Name("ratelimit"),
		kong.Description("Exact rate limits: a daemon for HTTP and gRPC, and its commands."),
		kong.PostBuild(setHelp),
		vars(),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { done = true }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.BindTo(stderr, (*io.Writer)(nil)),
	)
	if err != nil {
		panic(err) // the struct tags are wrong
	}
	if daemon.HasEnvoyVariables() && isForeign(args) {
		if len(args) > 0 {
			fmt.Fprintf(stderr, "warning: arguments are ignored, as envoyproxy/ratelimit ignores "+
				"them: %s\n", terminal.Line(strings.Join(args, " ")))
		}
		args = []string{"serve"}
	}
	if len(args) > 0 && args[0] == "replay" {
		fmt.Fprintln(stderr, "error: replay is the command ratelimit-replay: go install "+
			"github.com/truewindow/ratelimit/cmd/ratelimit-replay@latest")
		return exitUsage
	}
	unknown := checkEnvironment(parser.Model, args)
	command, err := parser.Parse(args)
	if done {
		return exitOK
	}
	if err == nil {
		err = unknown
	}
	if err != nil {
		fmt.Fprintf(stderr, "error: %s\nTry \"ratelimit --help\".\n", terminal.Lines(err.Error()))
		return exitUsage
	}
	if err := command.Run(); errors.Is(err, errRefused) {
		return exitRefused
	} else if err != nil {
		fmt.Fprintf(stderr, "error: %s\n", terminal.Lines(err.Error()))
		return exitError
	}
	return exitOK
}

// isForeign reports whether envoyproxy/ratelimit may be started with arguments: none, or flags,
// which it ignores.
func isForeign(args []string) bool {
	return len(args) == 0 || strings.HasPrefix(args[0], "-") &&
		!slices.Contains([]string{"-h", "--help", "--version"}, args[0])
}

// vars are the values of the variables in help texts.
func vars() kong.Vars {
	return kong.Vars{
		"version": version.String(), "algorithms": strings.Join(algorithms.Names(), ", ")}
}
