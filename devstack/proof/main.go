// Command proof runs the whole product as in production, under load and under faults, and checks what it
// promises against a history of what was seen from outside.
//
// A seed determines the workload and the schedule of faults. The history, the logs of all processes and
// the report stay in a folder.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

// run runs the proof, or one NATS server.
func run(args []string) error {
	if len(args) == 1 && args[0] == natsServerMode {
		return runNATSServer()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return parseFlagsAndProve(ctx, args)
}

func parseFlagsAndProve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("proof", flag.ContinueOnError)
	minutes := flags.Float64("minutes", 5, "duration of the workload in minutes")
	clusters := flags.Int("clusters", 2000, "number of clusters that are created")
	seed := flags.Uint64("seed", 0, "seed of the workload and the faults; 0 means a new one")
	kinds := flags.String("faults", "", "comma-separated kinds of faults: "+strings.Join(faults.Kinds(), ", ")+", or none (default: all, clock and restore only from 30 minutes on; with -bug those that it needs)")
	dir := flags.String("dir", "", "folder of the history, the report and the logs (default: a new temporary folder)")
	broker := flags.String("broker", brokerNATS, "broker: "+brokerNATS+" or "+brokerRabbitMQ)
	bug := flags.String("bug", "", "plant the bug that breaks a promise, such as R5; then the proof succeeds only if its checker finds it")
	upgrade := flags.Bool("upgrade", false, "start the previous release, roll to this one, back and forward again")
	scale := flags.Bool("scale", false, "measure what a fleet of -clusters costs, with one replica of each component and without faults")
	realGarden := flags.Bool("real-garden", false, "with -scale: use the real gardener-apiserver instead of the in-memory Gardener")
	check := flags.Bool("check", false, "only check the history in the folder of -dir again")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *check {
		return (&topology{dir: *dir, out: os.Stdout}).checkHistoryAndReport()
	}
	if *broker != brokerNATS && *broker != brokerRabbitMQ {
		return fmt.Errorf("unknown broker %q: use %s or %s", *broker, brokerNATS, brokerRabbitMQ)
	}
	if flags.NArg() > 0 || *minutes <= 0 || *clusters <= 0 {
		return errors.New("the number of minutes and clusters must be positive, and there are no further arguments")
	}
	withUpgrade := *upgrade || bugNeedsUpgrade(*bug)
	p := plan{
		duration:   time.Duration(*minutes * float64(time.Minute)),
		clusters:   *clusters,
		seed:       *seed,
		upgrade:    withUpgrade,
		broker:     *broker,
		bug:        *bug,
		realGarden: *realGarden,
	}
	if p.seed == 0 {
		p.seed = uint64(time.Now().UnixNano())
	}
	var err error
	if p.faults, err = chooseFaults(*kinds, p, whyImpossible); err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "fleetloop-proof-"); err != nil {
			return err
		}
	}
	// PostgreSQL runs as another user if this program is root.
	if err := errors.Join(os.MkdirAll(*dir, 0o755), os.Chmod(*dir, 0o755)); err != nil { //nolint:gosec // see above
		return err
	}
	if *dir, err = filepath.Abs(*dir); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if *scale {
		return measureScale(ctx, p, *dir, log)
	}
	return runProofAndReport(ctx, p, *dir, log)
}

// chooseFaults returns the kinds of faults that are asked for. By default these are those that the planted bug needs, and
// without a bug all that are possible here. By default only a long run sets clocks, for which the standard library is
// compiled again, and has a restore: with thousands of clusters, preflight and the conflicts take minutes.
func chooseFaults(kinds string, p plan, whyImpossible func(kind string, p plan) string) ([]string, error) {
	if p.bug != "" {
		planted, err := findBug(p.bug)
		if err != nil {
			return nil, err
		}
		if kinds == "" { // other faults could break the promise, too
			kinds = cmp.Or(planted.Faults, "none")
		}
	}
	named, err := faults.ParseKinds(kinds)
	if err != nil {
		return nil, err
	}
	var chosen []string
	for _, kind := range named {
		onlyLong := kind == faults.Clock || kind == faults.Restore
		if kinds == "" && onlyLong && p.duration < longRun {
			continue
		}
		reason := whyImpossible(kind, p)
		switch {
		case reason == "":
			chosen = append(chosen, kind)
		case kinds == "":
			fmt.Fprintf(os.Stderr, "proof: without the fault %s, which %s\n", kind, reason)
		default:
			return nil, fmt.Errorf("the fault %s %s", kind, reason)
		}
	}
	return chosen, nil
}

// whyImpossible returns why a fault is not possible here, empty if it is.
func whyImpossible(kind string, p plan) string {
	switch kind {
	case faults.Disk:
		if !canLimitDisks() {
			return "needs root on Linux"
		}
	case faults.Restore:
		if _, err := findPostgresClients(); err != nil {
			return "needs " + err.Error()
		}
		if p.upgrade {
			return "cannot be combined with -upgrade"
		}
	}
	return ""
}
