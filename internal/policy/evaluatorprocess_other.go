//go:build !linux

package policy

import (
	"errors"
	"syscall"
	"time"
)

const thisProgram = ""

func newKilledWithParentAttributes() *syscall.SysProcAttr { return nil }

// limitOwnCPUAndMemory fails: only Linux limits the memory of a process as needed here, and without the
// limit no condition is evaluated.
func limitOwnCPUAndMemory(time.Duration) error { return errors.ErrUnsupported }
