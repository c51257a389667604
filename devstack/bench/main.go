// Command bench measures ratios within one run: Fleetloop's performance relative
// to the physical limit, or to the usual implementation. It prints one line each:
//
//	ratio <component>.<name> <value> want <op> <number>
//
// The sides of a ratio read or publish the same bytes in one run, alternately, so that other load on the
// machine affects both. The figures are valid for an idle machine. A missed target is marked and makes
// the command fail, so that a slow change is noticed; no test is timed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// A line is one measured figure and its target.
type line struct {
	kind  string // ratio, or value if only an absolute figure makes sense
	name  string
	value float64
	unit  string
	op    string // <= or >=
	want  float64
}

func (l line) meetsWant() bool {
	if l.op == "<=" {
		return l.value <= l.want
	}
	return l.value >= l.want
}

// writeTo prints l in the documented form; a missed target is marked after it.
func (l line) writeTo(w io.Writer) {
	missed := ""
	if !l.meetsWant() {
		missed = " MISSED"
	}
	unit := ""
	if l.unit != "" {
		unit = " " + l.unit
	}
	_, _ = fmt.Fprintf(w, "%s %s %.3g%s want %s %g%s\n", l.kind, l.name, l.value, unit, l.op, l.want, missed)
}

// A bench measures the lines that it lists.
type bench struct {
	names []string
	run   func(ctx context.Context, progress io.Writer) ([]line, error)
}

func allBenches() []bench {
	list := []bench{decodeBench(), dueIndexMemoryBench(), sentinelListCPUBench(), sentinelPublishBench(), sentinelScaleBench(), manySentinelsMemoryBench(), reconfigureBench(), changeToCloudEventLatencyBench(), amqpBench(), natsBench(), pageVsSQLBench(), bulkLoadBench(), consoleBench(), consolePageBench(), consoleBundleBench(), fanoutBench(), timelineBench()}
	list = append(append(append(list, failoverBench()), clusterworkerBenches()...), kubebedBenches()...)
	return append(append(list, executionBenches()...), changeeventBench(), drainBench(), cordonBench())
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		// Its parent ends it.
		if err := runSentinelChild(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == bareChildArgument {
		if err := runBareChild(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", "", "run the benchmarks whose name begins so")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := runBenches(ctx, *only)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	case missed > 0:
		fmt.Fprintf(os.Stderr, "bench: %d wants missed\n", missed)
		os.Exit(1)
	}
}

// runBenches runs the benchmarks with a line whose name begins with only.
func runBenches(ctx context.Context, namePrefix string) (missed int, err error) {
	found := false
	for _, b := range allBenches() {
		wanted := func(name string) bool { return strings.HasPrefix(name, namePrefix) }
		if !slices.ContainsFunc(b.names, wanted) {
			continue
		}
		found = true
		fmt.Fprintln(os.Stderr, "measuring", strings.Join(b.names, ", "))
		lines, err := b.run(ctx, os.Stderr)
		if err != nil {
			return missed, fmt.Errorf("measure %s: %w", strings.Join(b.names, ", "), err)
		}
		for _, l := range lines {
			if !wanted(l.name) {
				continue
			}
			l.writeTo(os.Stdout)
			if !l.meetsWant() {
				missed++
			}
		}
	}
	if !found {
		return 0, fmt.Errorf("no benchmark's name begins with %q", namePrefix)
	}
	return missed, nil
}

// computeMedian returns the median of values, which it sorts.
func computeMedian(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
