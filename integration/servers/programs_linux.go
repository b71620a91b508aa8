package servers

import (
	"os/exec"
	"syscall"
)

// endWithTests makes the kernel kill a program when the tests are killed.
func endWithTests(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
