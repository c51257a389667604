//go:build !linux

package evaluator

import (
	"errors"
	"syscall"
	"time"
)

const thisProgram = ""

func attributes() *syscall.SysProcAttr { return nil }

// limitProcess fails: only Linux limits the memory of a process as needed here, and without the
// limit no condition is evaluated.
func limitProcess(time.Duration) error { return errors.ErrUnsupported }
