package fleettest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// First argument of this program when it runs as an image.
const (
	playGated   = "fleettest:gated"
	playFlaky   = "fleettest:flaky"
	playFailing = "fleettest:failing"
	playEndless = "fleettest:endless"
)

// RunFakeImage runs this program as one of the images, if its arguments request that, and returns the exit
// code. The arguments after the image are the directory that it shares with the tests, the runner,
// and the arguments of the container.
func RunFakeImage(args []string) (code int, isFakeImage bool) {
	const folder, runner = 2, 3
	if len(args) <= runner {
		return 0, false
	}
	f, ok := map[string]func(dir string) (code int, then bool){
		playGated: waitForGateFile, playFlaky: failOnce, playFailing: failPlan, playEndless: hangForever,
	}[args[1]]
	if !ok {
		return 0, false
	}
	if code, then := f(args[folder]); !then {
		return code, true
	}
	err := syscall.Exec(args[runner], args[runner:], os.Environ()) //nolint:gosec // our own program
	_, _ = fmt.Fprintln(os.Stderr, err)
	return int(action.CodeInvalid), true
}

// filePath returns the path of a file for the execution of this process.
func filePath(dir, about, uid string) string { return filepath.Join(dir, about+"-"+uid) }

func pathExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func waitForGateFile(dir string) (code int, proceed bool) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ticker := time.NewTicker(kubebedtest.PollEvery)
	defer ticker.Stop()
	for !pathExists(filePath(dir, "open", os.Getenv("EXECUTION_UID"))) {
		select {
		case <-ctx.Done():
			return int(action.CodeCancelled), false
		case <-ticker.C:
		}
	}
	return 0, true
}

func failOnce(dir string) (code int, proceed bool) {
	mark := filePath(dir, "tried", os.Getenv("EXECUTION_UID"))
	if pathExists(mark) {
		return 0, true
	}
	const mode = 0o600
	if err := os.WriteFile(mark, nil, mode); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
	}
	return int(action.CodeTransient), false
}

func failPlan(string) (code int, then bool) { return int(action.CodeTransient), false }

func hangForever(string) (code int, then bool) {
	signal.Ignore(syscall.SIGTERM)
	for {
		time.Sleep(time.Hour) //nolint:forbidigo // it is what this is about
	}
}
