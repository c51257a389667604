//go:build !linux

package evaluator

import (
	"errors"
	"syscall"
)

const thisProgram = ""

func attributes() *syscall.SysProcAttr { return nil }

// limitProcess fails: only Linux bounds the memory of a process as it is needed
// here, and without that nothing of anybody is evaluated.
func limitProcess() error { return errors.ErrUnsupported }
