package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	serverFlag = flag.String("server", "redis:8",
		"the measured server: a program in PATH, or else an `image` to run in a container")
	instructionsFlag = flag.Bool("instructions", false,
		"count the instructions of a server that is a program; valgrind makes it 50 times slower")
)

// A server is the measured Redis or Valkey. It keeps nothing on disk.
type server struct {
	addr    string
	control *redis.Client
	stop    func()
	// counted is the file to which valgrind dumps counts, or "".
	counted string
	pid     int
	dumps   int
}

const startTimeout = 2 * time.Minute // docker may have to get the image

// sharedServer returns the server of all benchmarks, which runs until the process ends.
var sharedServer = sync.OnceValues(startServer)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if flag.Lookup("test.bench").Value.String() != "" {
		if err := printFacts(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if measured != nil {
		measured.stop()
	}
	os.Exit(code)
}

// measured is the shared server, or nil if no benchmark has used it.
var measured *server

// printFacts prints what was measured and when, as lines of "with", a name and a value.
func printFacts() error {
	fmt.Println("with date", time.Now().UTC().Format(time.DateOnly))
	fmt.Println("with go", strings.TrimPrefix(runtime.Version(), "go"))
	fmt.Println("with cpus", runtime.NumCPU())
	if measured != nil {
		version, err := measured.version()
		if err != nil {
			return err
		}
		fmt.Println("with server", version)
	}
	text, err := os.ReadFile("go.mod")
	for line := range strings.Lines(string(text)) {
		module, isRequired := strings.CutPrefix(line, "\t")
		isOurs := strings.HasPrefix(module, "github.com/truewindow/")
		if isRequired && !isOurs && !strings.Contains(module, "// indirect") {
			fmt.Print("with ", module)
		}
	}
	return err
}

// version returns the name and the version of the server.
func (s *server) version() (string, error) {
	info := s.control.InfoMap(context.Background(), "server")
	if v := info.Item("Server", "valkey_version"); v != "" {
		return "Valkey " + v, info.Err()
	}
	return "Redis " + info.Item("Server", "redis_version"), info.Err()
}

func onServer(b *testing.B) *server {
	b.Helper()
	s, err := sharedServer()
	if err != nil {
		b.Fatal(err)
	}
	measured = s
	return s
}

func startServer() (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	listener.Close()
	s := &server{addr: "127.0.0.1:" + port}
	command := []string{"docker", "run", "--rm", "--network=host", *serverFlag}
	if _, err := exec.LookPath(*serverFlag); err == nil {
		command = []string{*serverFlag}
	} else if *instructionsFlag {
		return nil, err // valgrind would count those of docker
	}
	dir := ""
	if *instructionsFlag {
		if dir, err = os.MkdirTemp("", "ratelimit-benchmarks-"); err != nil {
			return nil, err
		}
		s.counted = filepath.Join(dir, "counts")
		command = append([]string{"valgrind", "-q", "--tool=callgrind",
			"--callgrind-out-file=" + s.counted}, command...)
	}
	command = append(command, "--bind", "127.0.0.1", "--port", port, "--save", "",
		"--appendonly", "no")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // returns that a signal ended it
	}()
	s.pid, s.control = cmd.Process.Pid, newGoRedis(s.addr)
	s.stop = sync.OnceFunc(func() {
		s.control.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM) // docker passes it on
		<-exited
		os.RemoveAll(dir)
	})
	for deadline := time.After(startTimeout); ; {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			conn.Close()
			return s, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
			continue
		case <-exited:
		case <-deadline:
		}
		s.stop()
		return nil, fmt.Errorf("%s does not answer: %w", *serverFlag, err)
	}
}

// open deletes all keys on the server and opens an entry.
func (s *server) open(tb testing.TB, e redisEntry, q quota) decider {
	tb.Helper()
	if err := s.control.FlushAll(context.Background()).Err(); err != nil {
		tb.Fatal(err)
	}
	d, err := e.open(s.addr, q)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(d.close)
	return d
}

// A snapshot is what the server has counted so far.
type snapshot struct {
	calls, usec   float64 // of the commands of an entry
	reads         float64
	in, out       float64 // bytes
	cpu           float64 // seconds
	inOwn, outOwn float64 // bytes of the snapshot's own command and reply
	instructions  float64 // since the last snapshot, if they are counted
}

// snapshot counts the calls of the named commands, or of scripts if commands is nil. The time of a
// script includes that of the commands that it runs.
func (s *server) snapshot(tb testing.TB, commands []string) snapshot {
	tb.Helper()
	if commands == nil {
		commands = []string{"evalsha", "eval"}
	}
	snap := snapshot{inOwn: 70}
	if s.counted != "" {
		snap.instructions = s.dump(tb)
	}
	text, err := s.control.Info(context.Background(), "stats", "commandstats", "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	snap.outOwn = float64(len(text))
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.ParseFloat(value, 64)
		command, isCommand := strings.CutPrefix(name, "cmdstat_")
		switch {
		case isCommand && slices.Contains(commands, command):
			var calls, usec float64
			if _, err := fmt.Sscanf(value, "calls=%f,usec=%f,", &calls, &usec); err != nil {
				tb.Fatal(err)
			}
			snap.calls, snap.usec = snap.calls+calls, snap.usec+usec
		case err != nil:
		case name == "total_reads_processed":
			snap.reads = n
		case name == "total_net_input_bytes":
			snap.in = n
		case name == "total_net_output_bytes":
			snap.out = n
		case name == "used_cpu_user" || name == "used_cpu_sys":
			snap.cpu += n
		}
	}
	return snap
}

// dump returns how many instructions the server has executed since the last dump.
func (s *server) dump(tb testing.TB) float64 {
	tb.Helper()
	s.dumps++
	out, err := exec.Command("callgrind_control", "--dump", strconv.Itoa(s.pid)).CombinedOutput()
	text, readErr := os.ReadFile(fmt.Sprintf("%s.%d", s.counted, s.dumps))
	if err = errors.Join(err, readErr); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	_, total, _ := strings.Cut(string(text), "\ntotals: ")
	n, err := strconv.ParseFloat(strings.TrimSpace(total), 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// report reports what each of the decisions since before has cost the server.
func (s *server) report(b *testing.B, commands []string, before snapshot, decisions float64) {
	b.Helper()
	after := s.snapshot(b, commands)
	each := func(total float64, unit string) { b.ReportMetric(total/decisions, unit) }
	each(after.usec-before.usec, "script-µs/op")
	each(after.calls-before.calls, "commands/op")
	each(after.reads-before.reads-1, "reads/op")
	each(after.in-before.in-before.inOwn, "B-in/op")
	each(after.out-before.out-before.outOwn, "B-out/op")
	each((after.cpu-before.cpu)*1e6, "server-µs/op")
	if s.counted != "" {
		each(after.instructions, "instructions/op")
	}
}

// A count counts calls by result. Those that failed are no decisions.
type count struct{ decisions, admitted, failed int64 }

func (c *count) add(admitted bool, err error) {
	switch {
	case err != nil:
		c.failed++
	case admitted:
		c.admitted++
		c.decisions++
	default:
		c.decisions++
	}
}

func (c *count) plus(d count) {
	*c = count{c.decisions + d.decisions, c.admitted + d.admitted, c.failed + d.failed}
}

// report reports the shares of calls, and returns the number of decisions.
func (c count) report(b *testing.B) float64 {
	b.Helper()
	if c.decisions == 0 {
		b.Fatalf("all %d calls failed", c.failed)
	}
	b.ReportMetric(float64(c.admitted)/float64(c.decisions), "admitted")
	if c.failed > 0 {
		b.ReportMetric(float64(c.failed)/float64(c.decisions+c.failed), "failed")
	}
	return float64(c.decisions)
}

// paceWorkers is the number of callers that share a pace.
const paceWorkers = 16

// pace makes decisions on the keys in turn, rate of them a second, for as long as next returns
// true.
func pace(ctx context.Context, d decider, keys []string, rate float64, next func() bool) count {
	calls := make(chan string)
	var mu sync.Mutex
	var sum count
	var wg sync.WaitGroup
	for range paceWorkers {
		wg.Go(func() {
			var n count
			for key := range calls {
				n.add(d.allow(ctx, key))
			}
			mu.Lock()
			defer mu.Unlock()
			sum.plus(n)
		})
	}
	start := time.Now()
	for i := 0; next(); i++ {
		time.Sleep(time.Duration(float64(i)/rate*1e9) - time.Since(start))
		calls <- keys[i%len(keys)]
	}
	close(calls)
	wg.Wait()
	return sum
}

// during returns a function that returns true for the duration.
func during(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}
