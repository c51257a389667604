package child

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Used is what a process has used so far.
type Used struct {
	CPU  time.Duration
	Peak int // of the memory in use, in bytes, its program included
}

func cpuTime(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }

// An Event is one that the broker has confirmed.
type Event struct {
	ResourceID string
	Generation int64
	At         time.Time
}

// Options are how a child differs. The zero value publishes to nowhere.
type Options struct {
	// Broker is the URL of a RabbitMQ that has the exchange Topic.
	Broker, Topic string

	// Sentinels is how many there are, each with a client of its own; 0 is one.
	Sentinels int

	// Memory is the memory of its pod, in MiB; 0 is that of one sentinel's.
	Memory int

	// OnEvent is called for each event that was confirmed, one at a time.
	OnEvent func(Event)
}

// A Process is a child that runs.
type Process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	onEvent func(Event)
	used    chan Used
	done    chan error
}

// The limits of the sentinel's pod, as the runtime is told of them: it has 128
// MiB, of which a tenth is left for what is not Go's, and less than one
// processor, which Go takes for two.
const (
	podMemory  = 128
	processors = "GOMAXPROCS=2"
)

func memoryLimit(pod int) string { return fmt.Sprintf("GOMEMLIMIT=%dMiB", pod*9/10) }

// Start starts a child with the text of a configuration file.
func Start(ctx context.Context, file string, o Options) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	p := &Process{onEvent: o.OnEvent, used: make(chan Used), done: make(chan error, 1)}
	// It is asked to end first, and so may be told to by ctx only when it does not.
	p.cmd = exec.CommandContext(ctx, program, spec{file: file, broker: o.Broker, topic: o.Topic, count: max(1, o.Sentinels)}.commandArgs()...) //nolint:gosec // this program
	p.cmd.Env = append(os.Environ(), memoryLimit(cmp.Or(o.Memory, podMemory)), processors)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a child: %w", err)
	}
	go p.readOutput(out)
	return p, nil
}

// readOutput reads what the child says until it ends.
func (p *Process) readOutput(out io.Reader) {
	var err error
	for lines := bufio.NewScanner(out); err == nil && lines.Scan(); {
		err = p.handleLine(lines.Text())
	}
	p.done <- errors.Join(err, p.cmd.Wait())
	close(p.used)
}

func (p *Process) handleLine(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case lineUsed:
		var u Used
		if _, err := fmt.Sscan(rest, (*int64)(&u.CPU), &u.Peak); err != nil {
			return err
		}
		p.used <- u
		return nil
	case lineEvent:
		var e Event
		var at int64
		if _, err := fmt.Sscan(rest, &e.ResourceID, &e.Generation, &at); err != nil {
			return err
		}
		e.At = time.Unix(0, at)
		p.onEvent(e)
		return nil
	}
	return fmt.Errorf("the child says %q", line)
}

// Used asks the child what it has used.
func (p *Process) Used() (Used, error) {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return Used{}, fmt.Errorf("ask the child: %w", err)
	}
	u, ok := <-p.used
	if !ok {
		return Used{}, errors.New("ask the child: it has ended")
	}
	return u, nil
}

// Stop ends the child and waits for it.
func (p *Process) Stop() error {
	_ = p.in.Close()
	return <-p.done
}
