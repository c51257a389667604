package policy

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// thisProgram is the running executable, even if its file was replaced.
const thisProgram = "/proc/self/exe"

// newKilledWithParentAttributes returns attributes that make the kernel end the process with the thread that started it: no evaluation
// outlives the controller.
func newKilledWithParentAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// limitOwnCPUAndMemory makes the kernel end this process if it exceeds its limits. They are
// MaxEvaluatorMemory, and a CPU time of cpu, rounded up to a second.
func limitOwnCPUAndMemory(cpu time.Duration) error {
	// Memory in use before the module is read does not count: with the race detector it is
	// gigabytes of addresses.
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var size, resident, shared, code, library, data uint64 // in pages
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared, &code, &library, &data); err != nil {
		return fmt.Errorf("read /proc/self/statm: %w", err)
	}
	memory := data*uint64(os.Getpagesize()) + MaxEvaluatorMemory //nolint:gosec // a page has some bytes
	var begun syscall.Rusage                                     // the CPU time of the start does not count either
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &begun); err != nil {
		return fmt.Errorf("read resource usage: %w", err)
	}
	used := time.Duration(begun.Utime.Nano() + begun.Stime.Nano())
	seconds := uint64((used + cpu + time.Second - 1) / time.Second) //nolint:gosec // it is above zero
	for resource, limit := range map[int]syscall.Rlimit{
		syscall.RLIMIT_DATA: {Cur: memory, Max: memory},
		syscall.RLIMIT_CPU:  {Cur: seconds, Max: seconds + 1}, // at the first the Go runtime reports the signal
		syscall.RLIMIT_CORE: {},
	} {
		if err := syscall.Setrlimit(resource, &limit); err != nil {
			return fmt.Errorf("set limit %d to %d: %w", resource, limit.Cur, err)
		}
	}
	return nil
}
