package integration

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
)

// A process is the test binary once more, as what an environment variable makes of it (see TestMain). Both sides speak JSON.
type process struct {
	cmd      *exec.Cmd
	stdin    io.Closer
	commands *json.Encoder
	answers  *json.Decoder
}

// startProcess starts a process with the task that env holds then, and returns when it has answered true: it is ready.
func startProcess(t testing.TB, env string, task any) *process {
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
	p := &process{cmd, stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)}
	var ready bool
	if err := p.answers.Decode(&ready); err != nil || !ready {
		t.Fatalf("a process is not ready: %v", err)
	}
	return p
}
