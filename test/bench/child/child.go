// Package child runs sentinels in a process of their own, so that a benchmark
// can tell what they take, and nothing else.
//
// The process is this program, started again. It runs the sentinel and the
// client as the binary does, from a configuration file's text, and publishes to
// RabbitMQ or to nowhere. It answers each line on its standard input with what
// it has used so far, tells of each event that was confirmed, and ends with its
// input, so that none is left over.
package child

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
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest/bench"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Argument is the first argument of a process that is a child.
const Argument = "sentinel-child"

// A spec is what a child is told, by its arguments.
type spec struct {
	file   string // the text of the sentinel's configuration file
	broker string // the URL of a RabbitMQ; empty publishes to nowhere
	topic  string
	count  int // of sentinels, all of that file
}

func (s spec) commandArgs() []string {
	return []string{Argument, s.file, s.broker, s.topic, strconv.Itoa(s.count)}
}

// Run is a child, with the arguments behind Argument.
func Run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 4 {
		return fmt.Errorf("run a child: want a configuration, a broker, a topic and how many sentinels, got %d arguments", len(args))
	}
	count, err := strconv.Atoi(args[3])
	if err != nil || count < 1 {
		return fmt.Errorf("run a child: %q is not how many sentinels", args[3])
	}
	return run(ctx, spec{file: args[0], broker: args[1], topic: args[2], count: count}, in, out)
}

func run(ctx context.Context, s spec, in io.Reader, out io.Writer) error {
	// The log is written as always, and thrown away.
	log := slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // the work is done that the binary does
	to, stop, err := s.publisher(ctx, log)
	if err != nil {
		return err
	}
	defer stop()
	var lines sync.Mutex
	say := func(format string, values ...any) {
		lines.Lock()
		defer lines.Unlock()
		_, _ = fmt.Fprintf(out, format+"\n", values...) // nobody listens any more; the input ends too
	}
	registry := prometheus.NewRegistry()
	var loops []*sentinel.Sentinel
	for i := range s.count {
		loop, err := s.newSentinel(sentinel.Deps{
			Publisher: to, BrokerType: "rabbitmq", Log: log,
			Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"config": strconv.Itoa(i)}, registry),
			OnPublished: func(p sentinel.Published) {
				say("%s %s %d %d", lineEvent, p.ResourceID, p.Generation, p.At.UnixNano())
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
			say("%s %d %d", lineUsed, used.CPU, used.Peak)
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

// newSentinel makes one as the binary does, with a client of its own.
func (s spec) newSentinel(deps sentinel.Deps) (*sentinel.Sentinel, error) {
	cfg := sentinelapp.Defaults()
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

// The first words of the lines that a child writes.
const (
	lineUsed  = "used"
	lineEvent = "event"
	lineError = "error"
)

// publisher is what Deps of the sentinel want.
type publisher interface {
	Publish(ctx context.Context, e *cloudevent.Event) error
	InFlight() int
	Ready() error
}

func (s spec) publisher(ctx context.Context, log *slog.Logger) (to publisher, stop func(), err error) {
	if s.broker == "" {
		return nowhere{}, func() {}, nil
	}
	broker, err := amqp.New(amqp.Config{URL: settings.Secret(s.broker), Topic: s.topic}, log)
	if err != nil {
		return nil, nil, err
	}
	stop, err = bench.Start(ctx, broker)
	return broker, stop, err
}

// nowhere has every event at once.
type nowhere struct{}

// Publish does nothing.
func (nowhere) Publish(context.Context, *cloudevent.Event) error { return nil }

// InFlight is always 0.
func (nowhere) InFlight() int { return 0 }

// Ready is always nil.
func (nowhere) Ready() error { return nil }

// measureUsage asks the system what this process has used.
func measureUsage() (Used, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return Used{}, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return Used{}, err
	}
	_, after, found := strings.Cut(string(status), "VmHWM:")
	var kilobytes int
	if _, err := fmt.Sscan(after, &kilobytes); !found || err != nil {
		return Used{}, errors.New("read the peak of the memory: no line VmHWM")
	}
	return Used{CPU: cpuTime(u), Peak: kilobytes << 10}, nil
}
