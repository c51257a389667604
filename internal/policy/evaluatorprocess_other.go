//go:build !linux

package policy

import (
	"errors"
	"syscall"
	"time"
)

const thisProgram = ""

func processAttributes() *syscall.SysProcAttr { return nil }

// limitProcess fails: only Linux limits the memory of a process as needed here, and without the
// limit no condition is evaluated.
func limitProcess(time.Duration) error { return errors.ErrUnsupported }
