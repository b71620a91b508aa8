package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// A Process is the test binary once more, with a Task instead of tests. Both sides write JSON.
type Process struct {
	Cmd      *exec.Cmd
	Stdin    io.Closer
	Commands *json.Encoder
	Answers  *json.Decoder
}

// StartProcess starts a process with the environment variable env set to task, as JSON, and returns
// when the process has answered true: it is ready.
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
		t.Fatalf("a process is not ready: %v", err)
	}
	return p
}

// RunTask is the other side of StartProcess: it runs the task that env holds, and returns the exit
// code of the process.
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
