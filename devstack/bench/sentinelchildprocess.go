package main

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

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// childUsage holds the usage of a process so far.
type childUsage struct {
	CPU       time.Duration
	Peak      int // of the memory in use, in bytes, including the program
	Published int // number of confirmed events
}

func sumCPUTime(u syscall.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A childEvent is an event that the broker has confirmed.
type childEvent struct {
	ResourceID string
	Generation int64
	At         time.Time
}

// childOptions changes the settings of a child. The zero value discards events.
type childOptions struct {
	// Broker is the URL of a RabbitMQ with the exchange Topic.
	Broker, Topic string

	// Sentinels is the number of sentinels, each with a separate client; 0 means one.
	Sentinels int

	// Memory is the memory of its pod, in MiB; 0 means that of one sentinel.
	Memory int

	// OnEvent is called for each confirmed event, one at a time. The child prints no events if it is nil.
	OnEvent func(childEvent)
}

// A childProcess is a running child.
type childProcess struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	onEvent func(childEvent)
	used    chan childUsage
	done    chan error
}

// The limits of the sentinel's pod in terms of the Go runtime. The pod has 128 MiB, of which a
// tenth is for memory outside Go, and less than one processor, which Go rounds up to two.
const (
	podMemory  = 128
	processors = "GOMAXPROCS=2"
)

func formatMemoryLimit(pod int) string { return fmt.Sprintf("GOMEMLIMIT=%dMiB", pod*9/10) }

// startChild starts a child with the text of a configuration file.
func startChild(ctx context.Context, config string, o childOptions) (*childProcess, error) {
	spec := childSpec{file: config, broker: o.Broker, topic: o.Topic, count: max(1, o.Sentinels), quiet: o.OnEvent == nil}
	return startThisProgram(ctx, spec.commandArgs(), o)
}

// startThisProgram starts this program again with the given arguments.
func startThisProgram(ctx context.Context, args []string, o childOptions) (*childProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &childProcess{onEvent: o.OnEvent, used: make(chan childUsage), done: make(chan error, 1)}
	// The process is first asked to end, so ctx ends it only if it does not.
	p.cmd = exec.CommandContext(ctx, program, args...) //nolint:gosec // this program
	p.cmd.Env = append(os.Environ(), formatMemoryLimit(cmp.Or(o.Memory, podMemory)), processors)
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
	go p.handleOutputAndWait(out)
	return p, nil
}

// handleOutputAndWait reads the child's output until it ends.
func (p *childProcess) handleOutputAndWait(out io.Reader) {
	var err error
	for lines := bufio.NewScanner(out); err == nil && lines.Scan(); {
		err = p.handleLine(lines.Text())
	}
	p.done <- errors.Join(err, p.cmd.Wait())
	close(p.used)
}

func (p *childProcess) handleLine(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case lineUsed:
		var u childUsage
		if _, err := fmt.Sscan(rest, (*int64)(&u.CPU), &u.Peak, &u.Published); err != nil {
			return err
		}
		p.used <- u
		return nil
	case lineEvent:
		var e childEvent
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

// RequestUsage requests the usage of the child.
func (p *childProcess) RequestUsage() (childUsage, error) {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return childUsage{}, fmt.Errorf("ask the child: %w", err)
	}
	u, ok := <-p.used
	if !ok {
		return childUsage{}, errors.New("ask the child: it has ended")
	}
	return u, nil
}

// awaitIdle waits until the child has listed everything: it uses almost no CPU time for a second.
func (p *childProcess) awaitIdle(ctx context.Context) error {
	const every, idle = time.Second, 20 * time.Millisecond
	last, err := p.RequestUsage()
	for err == nil {
		if err := backoff.Sleep(ctx, every); err != nil {
			return fmt.Errorf("wait for an idle sentinel: %w", err)
		}
		var used childUsage
		if used, err = p.RequestUsage(); err == nil && used.CPU-last.CPU < idle {
			return nil
		}
		last = used
	}
	return err
}

// Stop stops the child and waits for it.
func (p *childProcess) Stop() error {
	_ = p.in.Close()
	return <-p.done
}
