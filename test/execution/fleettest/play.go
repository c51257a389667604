package fleettest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// The first argument of this program where it stands for an image.
const (
	playGated   = "fleettest:gated"
	playFlaky   = "fleettest:flaky"
	playFailing = "fleettest:failing"
	playEndless = "fleettest:endless"
)

// playImage is this program as one of the images, which it reports. The other
// arguments are the folder that it shares with the tests, the runner, and the
// container's own.
func playImage(play string, args []string) bool {
	plays := map[string]func(dir string) (code int, then bool){
		playGated: waitForGate, playFlaky: failOnce, playFailing: fail, playEndless: endless,
	}
	f, ok := plays[play]
	if !ok {
		return false
	}
	const folderAndRunner = 2
	if len(args) < folderAndRunner {
		os.Exit(int(action.CodeInvalid))
	}
	code, then := f(args[0])
	if !then {
		os.Exit(code)
	}
	err := syscall.Exec(args[1], args[1:], os.Environ()) //nolint:gosec // our own program
	_, _ = fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
	return true
}

// file is one about the execution that this process is for.
func file(dir, about, uid string) string { return filepath.Join(dir, about+"-"+uid) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func waitForGate(dir string) (code int, then bool) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !exists(file(dir, "open", os.Getenv("EXECUTION_UID"))) {
		select {
		case <-ctx.Done():
			return int(action.CodeCancelled), false
		case <-ticker.C:
		}
	}
	return 0, true
}

func failOnce(dir string) (code int, then bool) {
	mark := file(dir, "tried", os.Getenv("EXECUTION_UID"))
	if exists(mark) {
		return 0, true
	}
	const mode = 0o600
	if err := os.WriteFile(mark, nil, mode); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
	}
	return int(action.CodeTransient), false
}

func fail(string) (code int, then bool) { return int(action.CodeTransient), false }

func endless(string) (code int, then bool) {
	signal.Ignore(syscall.SIGTERM)
	for {
		time.Sleep(time.Hour) //nolint:forbidigo // it is what this is about
	}
}
