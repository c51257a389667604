//go:build !linux

package evaluator

import (
	"errors"
	"syscall"
	"time"
)

const thisProgram = ""

func attributes() *syscall.SysProcAttr { return nil }

// limitProcess fails: only Linux bounds the memory of a process as it is needed
// here, and without that nothing of anybody is evaluated.
func limitProcess(time.Duration) error { return errors.ErrUnsupported }
