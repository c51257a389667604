package kubebed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// stopBound is how long a program may take to end after a signal.
const stopBound = 10 * time.Second

// A process is one run of a program, with its output in a file.
type process struct {
	name   string
	log    string
	from   int64 // offset of this run in the log
	cmd    *exec.Cmd
	told   atomic.Bool   // set before an intended stop
	done   chan struct{} // closed after its end
	ending error         // error of its end, set before done is closed
}

// launchProcess starts the program at path in the folder dir. Variables of env apply unless
// the environment of this process has them.
//
// The thread that forks must live as long as the child, because the kernel sends the
// parent-death signal when that thread ends, not the process. So one goroutine, locked
// to its thread, starts the child and waits for it.
func launchProcess(path, dir string, args, env []string) (*process, error) {
	name := filepath.Base(path)
	logFile, err := os.OpenFile(filepath.Join(dir, logFolder, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) //nolint:gosec // in the bed's folder
	if err != nil {
		return nil, err
	}
	from, err := logFile.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(err, logFile.Close())
	}
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // our own programs; they outlive any one context
	cmd.Dir = dir
	cmd.Env = slices.Concat(env, os.Environ(), []string{"PWD=" + dir, "HOME=" + dir}) // the last value of a variable wins
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = attributes()

	p := &process{name: name, log: logFile.Name(), from: from, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		// The child has a copy; this descriptor would only leak.
		err = errors.Join(err, logFile.Close())
		started <- err
		if cmd.Process == nil {
			return
		}
		p.ending = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// exitError returns an error with the output if the program has ended, and nil
// otherwise.
func (p *process) exitError() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	how := "with exit status 0"
	if p.ending != nil {
		how = p.ending.Error()
	}
	return fmt.Errorf("%s exited: %s; its output:\n%s", p.name, how, p.lastOutput())
}

// lastOutput returns the end of the output of this run.
func (p *process) lastOutput() string {
	const lines = 20
	return lastLines(readFileFrom(p.log, p.from), lines)
}

// stopWithSignalThenKill ends the program by sig, and by SIGKILL if that does not suffice.
func (p *process) stopWithSignalThenKill(sig syscall.Signal) error {
	p.told.Store(true)
	for _, s := range []syscall.Signal{sig, syscall.SIGKILL} {
		if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s (pid %d): %w", p.name, p.cmd.Process.Pid, err)
		}
		t := time.NewTimer(stopBound)
		select {
		case <-p.done:
			t.Stop()
			return nil
		case <-t.C:
		}
	}
	return fmt.Errorf("stop %s (pid %d): still running %s after SIGKILL", p.name, p.cmd.Process.Pid, stopBound)
}

// readFileFrom returns the content of a file from an offset on, empty on errors.
func readFileFrom(path string, offset int64) string {
	f, err := os.Open(path) //nolint:gosec // a log file of ours
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const most = 4 << 20 // limits the text of a very long log
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(offset, info.Size()-most), most))
	if err != nil {
		return ""
	}
	return string(text)
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
