//go:build !linux

package servers

import "os/exec"

func endWithTests(*exec.Cmd) {}
