package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is the test binary, running a Task instead of tests. Both sides exchange JSON.
type Process struct {
	Cmd      *exec.Cmd
	Stdin    io.Closer
	Commands *json.Encoder
	Answers  *json.Decoder
}

// StartProcess starts a process with the environment variable env set to task, as JSON, and returns
// when the process reports that it is ready.
func StartProcess(t testing.TB, env string, task any) *Process {
	t.Helper()
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd, stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)}
	var ready bool
	if err := p.Answers.Decode(&ready); err != nil || !ready {
		t.Fatalf("the process did not become ready: %v", err)
	}
	return p
}

// SharedClock reads a clock that all processes of this machine share and that never steps.
func SharedClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// RunTask runs the task that env holds, in a process started by StartProcess. It returns the exit
// code.
func RunTask[T any](env string, run func(T) error) int {
	var task T
	err := json.Unmarshal([]byte(env), &task)
	if err == nil {
		err = run(task)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
