package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// childArgument is the first argument of a child process.
const childArgument = "sentinel-child"

// A childSpec holds the arguments of a child.
type childSpec struct {
	file   string // the text of the sentinel's configuration file
	broker string // the URL of a RabbitMQ; empty discards events
	topic  string
	count  int  // number of sentinels, all with that file
	quiet  bool // events are counted, but not printed
}

func (s childSpec) commandArgs() []string {
	return []string{childArgument, s.file, s.broker, s.topic, strconv.Itoa(s.count), strconv.FormatBool(s.quiet)}
}

// runSentinelChild runs sentinels in this process, which startChild started so that a benchmark can measure
// only their usage. The arguments are those after childArgument.
//
// The process is this program, started again. It runs the sentinel and the client as the binary
// does, from the text of a configuration file, and publishes to RabbitMQ or discards events. It
// answers each line on its standard input with its usage so far, and prints each confirmed event unless it is quiet.
// It ends with its input, so that no process is left over.
func runSentinelChild(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 5 {
		return fmt.Errorf(
			"run a child: want a configuration, a broker, a topic, a number of sentinels and whether it is quiet, got %d arguments",
			len(args),
		)
	}
	count, err := strconv.Atoi(args[3])
	if err != nil || count < 1 {
		return fmt.Errorf("run a child: %q is not how many sentinels", args[3])
	}
	quiet, err := strconv.ParseBool(args[4])
	if err != nil {
		return fmt.Errorf("run a child: quiet is %q, want true or false", args[4])
	}
	return runSentinelsAndReportUsage(ctx, childSpec{file: args[0], broker: args[1], topic: args[2], count: count, quiet: quiet}, in, out)
}

func runSentinelsAndReportUsage(ctx context.Context, s childSpec, in io.Reader, out io.Writer) error {
	// The log is written as usual, and discarded.
	log := slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // the work is done that the binary does
	to, stop, err := s.openPublisher(ctx, log)
	if err != nil {
		return err
	}
	defer stop()
	var lines sync.Mutex
	say := func(format string, values ...any) {
		lines.Lock()
		defer lines.Unlock()
		_, _ = fmt.Fprintf(out, format+"\n", values...) // the parent may be gone; the input then ends too
	}
	var published atomic.Int64
	registry := prometheus.NewRegistry()
	var loops []*sentinel.Sentinel
	for i := range s.count {
		loop, err := s.newSentinel(sentinel.Deps{
			Publisher: to, BrokerType: "rabbitmq", Log: log,
			Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"config": strconv.Itoa(i)}, registry),
			OnPublished: func(p sentinel.Published) {
				published.Add(1)
				if !s.quiet {
					say("%s %s %d %d", lineEvent, p.ResourceID, p.Generation, p.At.UnixNano())
				}
			},
		})
		if err != nil {
			return err
		}
		loops = append(loops, loop)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(in); lines.Scan(); {
			used, err := measureUsage()
			if err != nil {
				say("%s %v", lineError, err)
			}
			say("%s %d %d %d", lineUsed, used.CPU, used.Peak, published.Load())
		}
	}()
	var running sync.WaitGroup
	errs := make([]error, len(loops))
	for i, loop := range loops {
		running.Go(func() { errs[i] = loop.Run(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// newSentinel returns a sentinel as the binary creates it, with a separate client.
func (s childSpec) newSentinel(deps sentinel.Deps) (*sentinel.Sentinel, error) {
	cfg := sentinelapp.OverriddenDefaults()
	if _, err := settings.Load(&cfg, settings.Source{File: "sentinel.yaml", FileData: []byte(s.file)}); err != nil {
		return nil, err
	}
	api, err := sentinelapp.NewClient(cfg.HyperfleetAPI)
	if err != nil {
		return nil, err
	}
	deps.API = api
	return sentinel.New(cfg.Sentinel, deps)
}

// The first words of a child's output lines.
const (
	lineUsed  = "used"
	lineEvent = "event"
	lineError = "error"
)

// publisher is the interface that Deps of the sentinel requires.
type eventPublisher interface {
	Publish(ctx context.Context, e *cloudevent.Event) error
	InFlight() int
	Ready() error
}

func (s childSpec) openPublisher(ctx context.Context, log *slog.Logger) (to eventPublisher, stop func(), err error) {
	if s.broker == "" {
		return discardPublisher{}, func() {}, nil
	}
	broker, err := amqp.New(amqp.Config{URL: settings.Secret(s.broker), Topic: s.topic}, log)
	if err != nil {
		return nil, nil, err
	}
	stop, err = startRunnerAndAwaitReady(ctx, broker)
	return broker, stop, err
}

// discardPublisher discards events and confirms them at once.
type discardPublisher struct{}

// Publish does nothing.
func (discardPublisher) Publish(context.Context, *cloudevent.Event) error { return nil }

// InFlight returns 0.
func (discardPublisher) InFlight() int { return 0 }

// Ready returns nil.
func (discardPublisher) Ready() error { return nil }

// measureUsage returns the resources that this process has used, from the operating system.
func measureUsage() (childUsage, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return childUsage{}, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return childUsage{}, err
	}
	_, after, found := strings.Cut(string(status), "VmHWM:")
	var kilobytes int
	if _, err := fmt.Sscan(after, &kilobytes); !found || err != nil {
		return childUsage{}, errors.New("read the peak of the memory: no line VmHWM")
	}
	return childUsage{CPU: sumCPUTime(u), Peak: kilobytes << 10}, nil
}
