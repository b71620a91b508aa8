// Command benchmarks compares this module with other rate limiters for Go.
//
//	go -C benchmarks run . [-quick] [-md file] [-json file] [-readme file] [-run regexp]
//	go -C benchmarks run . -from file [-md file] [-readme file]
//	go -C benchmarks run . -from file -charts directory
//	go -C benchmarks run . -run regexp [-quick] -merge file [-md file] [-readme file]
//
// Every round measures all entries in turn. A quotient is taken within one round, and the report
// has the median and the range over the rounds. A new entry is one more value in memoryEntries or
// redisEntries.
//
// The server is an installed redis-server or else a container; see the flags. It is stopped at the
// end.
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
	var err error
	if task, ok := os.LookupEnv(stormEnv); ok {
		err = stormProcess(ctx, task, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false,
		"measure less, in under two minutes instead of ten")
	markdown := flags.String("md", "",
		"write the Markdown report to `file` instead of standard output")
	jsonFile := flags.String("json", "", "also write the report as JSON to `file`")
	readme := flags.String("readme", "",
		"also write the comparison into `file`, between its markers")
	stored := flags.String("from", "",
		"measure nothing, but write the report in `file`, which -json wrote")
	merged := flags.String("merge", "",
		"replace the measured subjects of the report in `file`, which -json wrote, and keep "+
			"the others")
	chartsDir := flags.String("charts", "",
		"measure nothing, but draw the charts of the report of -from into `directory`")
	pattern := flags.String("run", "",
		"measure only cases that match `regexp`, as subject/case, such as commands/100")
	rounds := flags.Int("rounds", 0, "number of rounds; 0 means 4, or 2 with -quick")
	var from source
	flags.StringVar(&from.addr, "addr", "",
		"measure the empty server at `host:port`; the measurements delete all its keys")
	flags.StringVar(&from.binary, "binary", "", "start this redis-server or valkey-server `file`")
	flags.StringVar(&from.image, "image", "",
		"start a container of this `image` (without -addr and -binary, "+defaultImage+
			" unless redis-server is installed)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *merged != "" && (*jsonFile != "" || *stored != "") {
		return errors.New("-merge cannot be combined with -json or -from")
	}
	if *chartsDir != "" && *stored == "" {
		return errors.New("-charts needs -from")
	}
	if *stored != "" {
		rep, err := readReport(*stored)
		if err != nil {
			return err
		}
		if *chartsDir != "" {
			return rep.writeCharts(*chartsDir)
		}
		return rep.write(stdout, *markdown, "", *readme)
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
		return fmt.Errorf("no subject/case matches -run %q", *pattern)
	}

	started := time.Now()
	rep := &report{
		Started: started.UTC().Truncate(time.Second),
		Command: strings.Join(append([]string{"go -C benchmarks run ."}, args...), " "),
		Quick:   *quick, Rounds: *rounds, Machine: machine(),
	}
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
		fmt.Fprintf(stderr, "%4.0fs %s\n", time.Since(started).Seconds(), s)
	}); err != nil {
		return err
	}
	rep.Took = time.Since(started).Round(time.Second)
	if !*quick && memoryAvailable() < hugeKeysMemory {
		res.errors = append(res.errors,
			fmt.Sprintf("scale, %d keys: left out, because it needs %d GiB of available memory",
				hugeKeys, hugeKeysMemory>>30))
	}
	rep.Targets, rep.Tables, rep.Failures = res.judge(targets), res.tables(subjects), res.errors
	rep.describeEntries(local, remote)
	if *merged != "" {
		whole, err := readReport(*merged)
		if err != nil {
			return err
		}
		if err := whole.merge(rep); err != nil {
			return fmt.Errorf("%s: %w", *merged, err)
		}
		rep, *jsonFile = whole, *merged
	}
	return rep.write(stdout, *markdown, *jsonFile, *readme)
}

// write writes the report to the named files, and as Markdown to stdout if markdown is empty.
func (r *report) write(stdout io.Writer, markdown, jsonFile, readme string) error {
	if jsonFile != "" {
		if err := writeFile(jsonFile, r.writeJSON); err != nil {
			return err
		}
	}
	if readme != "" {
		text, err := os.ReadFile(readme)
		if err != nil {
			return err
		}
		compared, err := r.insertComparison(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", readme, err)
		}
		if err := os.WriteFile(readme, []byte(compared), 0o644); err != nil {
			return err
		}
	}
	if markdown != "" {
		return writeFile(markdown, r.writeMarkdown)
	}
	return r.writeMarkdown(stdout)
}

// allSubjects returns what a run measures. *srv must be set only while a subject is measured.
func allSubjects(srv **server, quick bool) []subject {
	subjects := []subject{
		exactMemory(quick), inProcess(quick), growing(quick), together(quick), heap(quick),
		scale(quick), httpEdges(quick), otherEdges(quick),
	}
	for _, s := range []subject{
		exactRedis(srv, quick), commandTime(srv, quick), serverMemory(srv, quick),
		replication(srv, quick), weights(srv, quick), budgets(srv, quick), load(srv, quick),
		cachedRefusalsOf(srv, quick),
	} {
		s.onServer = true
		subjects = append(subjects, s)
	}
	return subjects
}

// choose returns the subjects with the cases that match wanted, as subject/case.
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

// machine describes the machine and its load.
func machine() []fact {
	facts := []fact{
		{"CPU", field("/proc/cpuinfo", "model name", ":")},
		{"cores", fmt.Sprint(runtime.NumCPU())},
		{"memory", fmt.Sprintf("%.0f GiB available", float64(memoryAvailable())/(1<<30))},
		{"OS", strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`)},
		{"Go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ := strings.Cut(string(text), " ")
		facts = append(facts, fact{"load average at the start", load})
	}
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Value == "" })
}

// field returns the value of the first line with the name, or "".
func field(file, name, separator string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if n, value, ok := strings.Cut(line, separator); ok && strings.TrimSpace(n) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// describeEntries adds the entries that were measured, and the versions of modules.
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
			r.Entries[inProcessEntries] = append(r.Entries[inProcessEntries], e.about)
		}
	}
	if remote {
		for _, e := range redisEntries {
			r.Entries[serverEntries] = append(r.Entries[serverEntries], e.about)
		}
	}
}
