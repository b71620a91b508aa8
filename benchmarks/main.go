// Command benchmarks measures this module and what else Go programs use to limit rates, side by side.
//
//	go -C benchmarks run . [-quick] [-md file] [-json file] [-run regexp]
//
// Every round measures all entries in turn; a quotient is taken within one round, and the report has the median and the range over the
// rounds. A new entry is one more value in memoryEntries or redisEntries.
//
// The server under measurement is a redis-server that is installed, or else a container; see the flags. It is stopped at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "measure less and shorter: below two minutes instead of ten")
	markdown := flags.String("md", "", "write the Markdown report to `file` instead of standard output")
	jsonFile := flags.String("json", "", "also write the report as JSON to `file`")
	pattern := flags.String("run", "", "measure only what matches `regexp`, as subject/case such as commands/100")
	rounds := flags.Int("rounds", 0, "number of rounds; 0 means 4, or 2 with -quick")
	var from source
	flags.StringVar(&from.addr, "addr", "", "measure the empty server at `host:port`; the measurements delete all its keys")
	flags.StringVar(&from.binary, "binary", "", "start this redis-server or valkey-server `file`")
	flags.StringVar(&from.image, "image", "", "start a container of this `image` (without -addr and -binary, "+defaultImage+" unless redis-server is installed)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	wanted, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	if *rounds == 0 {
		*rounds = 4
		if *quick {
			*rounds = 2
		}
	}

	var srv *server
	subjects := choose(allSubjects(&srv, *quick), wanted)
	local := slices.ContainsFunc(subjects, func(s subject) bool { return !s.onServer })
	remote := slices.ContainsFunc(subjects, func(s subject) bool { return s.onServer })
	if len(subjects) == 0 {
		return fmt.Errorf("nothing matches %q", *pattern)
	}

	rep := &report{Started: time.Now(), Command: strings.Join(append([]string{"benchmarks"}, args...), " "), Rounds: *rounds, Machine: machine()}
	res := newResults()
	if remote {
		if srv, err = startServer(ctx, from); err != nil {
			return err
		}
		defer srv.stop()
		rep.Machine = append(rep.Machine, fact{"server", srv.version(ctx) + ", " + srv.origin})
		if rep.Limits, err = srv.limits(ctx, *quick); err != nil {
			res.errors = append(res.errors, err.Error())
		}
	}
	if err := res.run(ctx, subjects, *rounds, func(s string) {
		fmt.Fprintf(stderr, "%4.0fs %s\n", time.Since(rep.Started).Seconds(), s)
	}); err != nil {
		return err
	}
	rep.Took = time.Since(rep.Started)
	rep.Targets, rep.Tables, rep.Failures = res.judge(targets), res.tables(subjects), res.errors
	rep.describeEntries(local, remote)
	if *jsonFile != "" {
		if err := writeFile(*jsonFile, rep.writeJSON); err != nil {
			return err
		}
	}
	if *markdown != "" {
		return writeFile(*markdown, rep.writeMarkdown)
	}
	return rep.writeMarkdown(stdout)
}

// allSubjects returns what a run measures. The server has to be there only when it is measured.
func allSubjects(srv **server, quick bool) []subject {
	subjects := []subject{exactMemory(quick), inProcess(quick), heap(quick)}
	for _, s := range []subject{exactRedis(srv, quick), commandTime(srv, quick), serverMemory(srv, quick), replication(srv, quick), load(srv, quick)} {
		s.onServer = true
		subjects = append(subjects, s)
	}
	return subjects
}

// choose leaves the cases that match "subject/case".
func choose(subjects []subject, wanted *regexp.Regexp) []subject {
	var chosen []subject
	for _, s := range subjects {
		var cases []testCase
		for _, c := range s.cases {
			if wanted.MatchString(s.name + "/" + c.name) {
				cases = append(cases, c)
			}
		}
		if s.cases = cases; len(cases) > 0 {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func machine() []fact {
	facts := []fact{{"Go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}, {"CPUs", fmt.Sprint(runtime.NumCPU())}}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return append(facts, fact{"CPU", strings.TrimSpace(model)})
			}
		}
	}
	return facts
}

// describeEntries tells what was measured, with versions.
func (r *report) describeEntries(local, remote bool) {
	r.Entries, r.Versions = make(map[string][]about), map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			r.Versions[m.Path] = m.Version
		}
	}
	r.Versions[oursName] = "this"
	if local {
		for _, e := range memoryEntries {
			r.Entries["in process"] = append(r.Entries["in process"], e.about)
		}
	}
	if remote {
		for _, e := range redisEntries {
			r.Entries["server"] = append(r.Entries["server"], e.about)
		}
	}
}
