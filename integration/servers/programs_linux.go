package servers

import (
	"os/exec"
	"syscall"
)

// endWithTests has the kernel end a program when the tests are killed.
func endWithTests(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
