package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// A serverHome is the folder of one server, locked while the server is in use.
//
//	lock         held by the process that runs the server, with its pid
//	data         PGDATA, or a link to it
//	password     of the superuser; absent if the loopback port requires none
//	server.log   since the last start; server.log.1 is the previous one
type serverHome struct {
	dir      string
	data     string
	password string
	user     *account // the server's user; nil means this process's user
	lock     *os.File

	temporary bool // data outside dir is temporary
}

var errPortTaken = errors.New("the port is in use")

// openAndLockHome creates and locks the folder.
func openAndLockHome(cfg Config) (*serverHome, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	h := &serverHome{dir: dir, data: filepath.Join(dir, "data"), temporary: cfg.Temporary || cfg.Throwaway}
	mode := fs.FileMode(0o700)
	if isRoot() {
		if h.user, err = findServerAccount(); err != nil {
			return nil, err
		}
		mode = 0o711 // the server's user can enter but not list it
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, mode); err != nil {
		return nil, err
	}
	if h.lock, err = openLockAndWritePID(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	if err := h.resolveDataAndReadPassword(); err != nil {
		return nil, errors.Join(err, h.unlockHome())
	}
	return h, nil
}

// resolveDataAndReadPassword determines the data folder and the password.
func (h *serverHome) resolveDataAndReadPassword() error {
	data, err := h.dataFolderOrCreateLinked()
	if err != nil {
		return err
	}
	h.data = data
	pw, err := os.ReadFile(filepath.Join(h.dir, "password"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	h.password = strings.TrimSpace(string(pw))
	return err
}

func (h *serverHome) unlockHome() error {
	if h.lock == nil {
		return nil
	}
	// Close alone does not release the lock while a child process has a copy of the descriptor, between fork and exec.
	err := errors.Join(syscall.Flock(int(h.lock.Fd()), syscall.LOCK_UN), h.lock.Close())
	h.lock = nil
	return err
}

// openLockAndWritePID opens the file and takes the lock without waiting. The kernel releases it however the process ends.
func openLockAndWritePID(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // in the folder we were given
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 20)
		n, _ := f.Read(holder)
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf(
				"the folder is in use by process %s: stop that process or use another folder",
				strings.TrimSpace(string(holder[:n])),
			)
		}
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readDataMajorVersion returns the major version of the data, 0 without data.
func (h *serverHome) readDataMajorVersion() (dataMajor int, err error) {
	b, err := os.ReadFile(filepath.Join(h.data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the data in %q: %w", h.data, err)
	}
	return major, nil
}

// initDataFolderAndPassword creates the data folder under another name and renames it when it is complete. An
// interrupted attempt then leaves nothing that looks usable.
func (h *serverHome) initDataFolderAndPassword(ctx context.Context, bins binaries, throwaway bool) error {
	fresh := h.data + unfinishedSuffix
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove the unfinished data folder: %w", err)
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return fmt.Errorf("create the data folder: %w", err)
	}
	if err := h.chownToServerUser(fresh); err != nil {
		return err
	}
	args := []string{"-D", fresh, "-U", SuperUser, "-E", "UTF8", "--locale=C"}
	if throwaway {
		args = append(args, "--auth=trust", "--no-sync")
	} else {
		file, err := h.storeNewPassword()
		if err != nil {
			return fmt.Errorf("save the password of postgres: %w", err)
		}
		defer func() { _ = os.Remove(file) }()
		args = append(args, "--auth=scram-sha-256", "--pwfile="+file)
	}
	cmd := exec.CommandContext(ctx, bins.initdbPath(), args...) //nolint:gosec // the path was found by us
	cmd.Env = h.serverEnvironment()
	cmd.Dir = "/"
	cmd.SysProcAttr = h.newProcessAttributes(syscall.SIGKILL)
	// As for the server itself: the thread that forks must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("initialise postgres data in %q: %w", fresh, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("initialise postgres data in %q: %w:\n%s", fresh, err, keepLastLines(string(out)))
	}
	if err := os.Rename(fresh, h.data); err != nil {
		return fmt.Errorf("move the data folder into place: %w", err)
	}
	return nil
}

// storeNewPassword stores a new password and returns a file that initdb may read.
func (h *serverHome) storeNewPassword() (initdbFile string, err error) {
	h.password = rand.Text()
	kept := filepath.Join(h.dir, "password")
	// A file of an earlier attempt keeps its mode when it is overwritten.
	if err := os.Remove(kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.WriteFile(kept, []byte(h.password+"\n"), 0o600); err != nil {
		return "", err
	}
	// Next to the data, because the server's user may be unable to enter h.dir.
	readable := filepath.Join(filepath.Dir(h.data), "password.init")
	if err := os.Remove(readable); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.WriteFile(readable, []byte(h.password+"\n"), 0o600); err != nil {
		return "", err
	}
	return readable, h.chownToServerUser(readable)
}

// serverEnvironment returns the server's environment. It excludes this process's variables, such as
// PGDATA and PGPORT. Without LC_ALL the server refuses to start on macOS.
func (h *serverHome) serverEnvironment() []string {
	return []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
}

func (h *serverHome) logPath() string { return filepath.Join(h.dir, "server.log") }

func (h *serverHome) rotateAndOpenLog() (*os.File, error) {
	if err := os.Rename(h.logPath(), h.logPath()+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rename the old server log: %w", err)
	}
	f, err := os.OpenFile(h.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server log: %w", err)
	}
	return f, nil
}

// readLogTail returns the end of the server's log, or the error of reading it.
func (h *serverHome) readLogTail() string {
	b, err := os.ReadFile(h.logPath())
	if err != nil {
		return err.Error()
	}
	return keepLastLines(string(b))
}

// newStartError explains why a server ended before it accepted connections.
func (h *serverHome) newStartError(exitErr error) error {
	tail := h.readLogTail()
	err := fmt.Errorf("postgres did not start (%w); the end of its log %q:\n%s", exitErr, h.logPath(), tail)
	if strings.Contains(tail, "could not bind") || strings.Contains(tail, "Address already in use") {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

func keepLastLines(s string) string {
	const most = 15
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return strings.Join(lines, "\n")
}
