// Command ratelimit-replay says what proposed limits would have refused of the requests in a log:
//
//	ratelimit-replay --log access.log --limit 100/1m
//
// docs/replay.md of the module github.com/truewindow/ratelimit has examples.
package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/cmd/internal/version"
	"github.com/truewindow/ratelimit/cmd/ratelimit-replay/replay"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
)

// Exit codes of run.
const (
	exitOK    = 0
	exitError = 1 // the replay failed
	exitUsage = 2 // the command line is wrong
)

type commandLine struct {
	replay.Command
	Version kong.VersionFlag `help:"Print the version and exit."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code when the replay or ctx has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	done := false // kong calls Exit after --help and --version, and continues if that returns
	var cl commandLine
	parser, err := kong.New(&cl,
		kong.Name("ratelimit-replay"),
		kong.Description("Replay a log of requests under proposed limits."),
		kong.PostBuild(setHelp),
		kong.Vars{"version": version.String(),
			"algorithms": strings.Join(algorithms.Names(), ", ")},
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
		fmt.Fprintf(stderr, "error: %s\nTry \"ratelimit-replay --help\".\n",
			terminal.Lines(err.Error()))
		return exitUsage
	}
	if err := command.Run(); err != nil {
		fmt.Fprintf(stderr, "error: %s\n", terminal.Lines(err.Error()))
		return exitError
	}
	return exitOK
}

// setHelp sets the help of the flags from replay.Help. A flag without a text and a text without a
// flag are errors.
func setHelp(k *kong.Kong) error {
	texts := maps.Clone(replay.Help)
	for _, flag := range k.Model.Flags {
		if text, ok := texts[flag.Name]; ok {
			flag.Help = text
			delete(texts, flag.Name)
		} else if flag.Help == "" {
			return fmt.Errorf("--%s has no help text", flag.Name)
		}
	}
	for name := range texts {
		return fmt.Errorf("--%s is no flag", name)
	}
	return nil
}
