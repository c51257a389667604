package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// clockEnv is the environment variable with the path of a clock.
const clockEnv = "PROOF_CLOCK"

// A clock is a file with the number of seconds that the wall clock of a program is ahead. The program maps it into its
// memory, so a change has effect at once.
type clock string

// newClock creates a clock that is right. The program may run as another user.
func newClock(path string) (clock, error) {
	err := os.WriteFile(path, make([]byte, 8), 0o644)           //nolint:gosec // see above
	return clock(path), errors.Join(err, os.Chmod(path, 0o644)) //nolint:gosec // see above
}

// set sets how far the wall clock is ahead, in whole seconds.
func (c clock) set(ahead time.Duration) error {
	f, err := os.OpenFile(string(c), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := binary.Write(f, binary.NativeEndian, int64(ahead/time.Second)); err != nil {
		_ = f.Close() // it was not written
		return fmt.Errorf("set a clock: %w", err)
	}
	return f.Close()
}

// goClock is a file of package time, for the compiler only.
//
//go:embed clock/time.go.txt
var goClock string

// addClock makes the wall clock of all programs that are built with the overlay that of clockEnv. Their monotonic clock
// stays as it is. root is the folder of a module, which determines the version of Go.
func (o *overlay) addClock(ctx context.Context, root string) error {
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the source of Go: %w", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	const now = "sec, nsec, mono := runtimeNow()"
	if err := o.edit(filepath.Join(dir, "time.go"), now, now+"; sec += proofClockAhead()"); err != nil {
		return fmt.Errorf("change the clock of Go: %w", err)
	}
	return o.add(filepath.Join(dir, "proofclock.go"), goClock)
}

// createDatabaseClock creates the clock of PostgreSQL, if that can be set here. It returns the environment of the servers.
func (t *topology) createDatabaseClock(ctx context.Context) (env map[string]string, err error) {
	cc, _ := exec.LookPath("cc") // without one it is empty
	if cc == "" || runtime.GOOS != "linux" {
		_, _ = fmt.Fprintln(t.out, "proof: the clock of PostgreSQL is not set, because that needs Linux and a C compiler")
		return nil, nil
	}
	library := filepath.Join(t.dir, "clock.so")
	if err := buildPreload(ctx, cc, library); err != nil {
		return nil, err
	}
	if t.databaseClock, err = newClock(filepath.Join(t.dir, "postgresql.clock")); err != nil {
		return nil, err
	}
	return map[string]string{"LD_PRELOAD": library, clockEnv: string(t.databaseClock)}, nil
}

// cClock is a library that a C program loads first.
//
//go:embed clock/preload.c
var cClock string

// buildPreload builds the library that makes the wall clock of a C program that of clockEnv.
//
// libfaketime is no replacement. It allocates memory in signal handlers, which can hang a server, and a killed server
// leaves shared memory behind that keeps a later one with its process id from starting.
func buildPreload(ctx context.Context, cc, library string) error {
	cmd := exec.CommandContext(ctx, cc, "-shared", "-fPIC", "-O2", "-x", "c", "-o", library, "-") //nolint:gosec // the compiler
	cmd.Stdin = strings.NewReader(cClock)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the clock of PostgreSQL: %w\n%s", err, out)
	}
	return os.Chmod(library, 0o755) //nolint:gosec // PostgreSQL runs as another user
}
