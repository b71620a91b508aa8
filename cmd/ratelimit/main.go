// Command ratelimit answers rate-limit decisions over HTTP.
//
//	ratelimit serve --limit 10/1s --limit day=5000/24h --store redis://localhost:6379
//
// "ratelimit serve --help" lists the flags, each of which has an environment variable.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9/logging"
)

// Exit codes of run.
const (
	exitOK    = 0
	exitError = 1 // it could not do its work
	exitUsage = 2 // the command line or the environment is wrong
)

// commandLine is what kong parses: one field a verb, each in a file of its own, which has a Run method.
type commandLine struct {
	Serve   serveCmd         `cmd:"" help:"Answer rate-limit decisions over HTTP."`
	Version kong.VersionFlag `help:"Print the version and exit."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main but for the process: it ends when its work is done or ctx has ended, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	logging.Disable() // the Redis client's lines are not structured, and its errors come with the store's
	done := false     // kong asks to exit after --help and --version, and goes on if that returns
	var cl commandLine
	parser, err := kong.New(&cl,
		kong.Name("ratelimit"),
		kong.Description("Exact rate limits over HTTP."),
		kong.Vars{"version": version()},
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { done = true }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.BindTo(stderr, (*io.Writer)(nil)),
	)
	if err != nil {
		panic(err) // the struct tags are wrong
	}
	command, err := parser.Parse(args)
	if done {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "error: %v\nTry \"ratelimit --help\".\n", err)
		return exitUsage
	}
	if err := command.Run(); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return exitError
	}
	return exitOK
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
