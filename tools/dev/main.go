// Command dev does the jobs of the Makefile for which no ready-made tool exists. The first argument
// selects the job:
//
//	go run ./tools/dev words -show
//
// Each job is in the file with its name.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

// A job is one subcommand.
type job struct {
	name, summary string
	run           func(ctx context.Context, args []string, out io.Writer) error
}

func listJobs() []job {
	return []job{
		{"packages", "list the packages whose tests start servers, programs or neither", printPackagesOfTestGroups},
		{"page", "record the source from which the console's page was built", runPage},
		{"picture", "draw the live view of a run of the demo", parseFlagsAndDrawDemoFrame},
		{"ports", "check that the addresses of fleetloop up are free", checkPortsFree},
		{"protos", "write the Go code of protobuf files", generateProtos},
		{"specification", "cut the tests' examples out of the sentinel's specifications", parseFlagsAndWriteSpecExcerpts},
		{"timing", "measure how long users wait for a demo, the tests and CI", parseFlagsAndCheckUserWaits},
		{"words", "measure the private idiom of a Go tree", parseFlagsAndMeasureIdiom},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := runJob(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runJob runs the job that the first argument names.
func runJob(ctx context.Context, args []string, out io.Writer) error {
	var list strings.Builder
	for _, j := range listJobs() {
		if len(args) > 0 && args[0] == j.name {
			if err := j.run(ctx, args[1:], out); err != nil {
				return fmt.Errorf("%s: %w", j.name, err)
			}
			return nil
		}
		fmt.Fprintf(&list, "\n  %-14s %s", j.name, j.summary)
	}
	return fmt.Errorf("dev: the first argument must be a job:%s", list.String())
}
