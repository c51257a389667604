package pgserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// StartStandby copies a running server into an empty folder, and starts the copy as a streaming standby of it. The
// settings of the server must allow replication.
func StartStandby(ctx context.Context, cfg Config, primary *Server, log *slog.Logger) (*Server, error) {
	if err := copyAsStandby(ctx, cfg, primary); err != nil {
		return nil, fmt.Errorf("copy the primary to %q: %w", cfg.Dir, err)
	}
	return Start(ctx, cfg, log)
}

func copyAsStandby(ctx context.Context, cfg Config, primary *Server) (err error) {
	h, err := openAndLockHome(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.unlockHome()) }()
	if major, err := h.readDataMajorVersion(); err != nil || major != 0 {
		return errors.Join(err, errors.New("the folder is not empty"))
	}
	if primary.home.password != "" {
		if err := os.WriteFile(filepath.Join(h.dir, "password"), []byte(primary.home.password+"\n"), 0o600); err != nil {
			return err
		}
	}
	if err := os.Mkdir(h.data, 0o700); err != nil {
		return err
	}
	if err := h.chownToServerUser(h.data); err != nil {
		return err
	}
	program, err := primary.bins.findBaseBackup()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "--pgdata="+h.data, "--dbname="+primary.urlForDatabase("postgres"), //nolint:gosec // our own arguments
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast")
	cmd.Env = h.serverEnvironment()
	cmd.Dir = "/"
	cmd.SysProcAttr = h.newProcessAttributes(syscall.SIGKILL)
	// As for the server itself: the thread that forks must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// findBaseBackup returns the path of pg_basebackup, which some packages keep apart from the server.
func (b binaries) findBaseBackup() (path string, err error) {
	path = filepath.Join(b.dir, "pg_basebackup")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if path, err = exec.LookPath("pg_basebackup"); err != nil {
		return "", fmt.Errorf("pg_basebackup is not installed: %s", howToInstall)
	}
	return path, nil
}
