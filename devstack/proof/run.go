package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/version"
)

const (
	progressEvery = 10 * time.Second
	// faultSettleBound is the longest time until all agree after the last fault. The lease of a killed worker
	// ends after a minute, and the delay after a second failed sync is two minutes.
	faultSettleBound = 6 * time.Minute
	// quietSettleBound is that if nothing was killed. A change event whose worker has ended is sent after
	// its lease of two minutes.
	quietSettleBound = 150 * time.Second
	// sentinelInterval is the default interval of the chart for clusters that are not ready.
	sentinelInterval = 10 * time.Second
	// sentinelPoll is the default interval of polls. A round that had to wait charges its events to the
	// time of its start, so that they can come together with those of the next one.
	sentinelPoll = 5 * time.Second
	// clockSkew is how far times may differ that processes of one machine took.
	clockSkew = time.Second

	// Each event rate is a multiple of that which the workload needs. A fleet of which all is due at once
	// needs at most catchUpTime. A small one is not limited.
	eventRateFactor = 1.5
	catchUpTime     = time.Minute
	minEventRate    = 20 // per second, of all sentinels
)

// A plan is what the arguments ask for.
type plan struct {
	duration time.Duration
	clusters int
	seed     uint64
	faults   []string
	upgrade  bool   // from the previous release, back and forward again
	broker   string // brokerNATS or brokerRabbitMQ
	bug      string // promise that a planted bug breaks; empty means none

	realGarden bool // of a measurement of the scale
}

// eventRate returns the maximum number of events per second of each of some sentinels.
func (p plan) eventRate(replicas int) float64 {
	created := float64(p.clusters) / (createShare * p.duration.Seconds())
	edited := float64(editsPerCluster*p.clusters) / p.duration.Seconds()
	return max(minEventRate, eventRateFactor*(created+edited), float64(p.clusters)/catchUpTime.Seconds()) / float64(replicas)
}

func (p plan) settleBound() time.Duration {
	if len(p.faults) == 0 {
		return quietSettleBound
	}
	return faultSettleBound
}

var errViolations = errors.New("a promise was broken")

func (t *topology) checkerConfig() history.Config {
	return history.Config{
		ClockSkew: clockSkew,
		Rates: map[string]history.Rate{
			"sentinel":       {Replicas: t.replicas(sentinelReplicas), PerSecond: t.eventRate, Burst: 2 * t.eventRate * sentinelPoll.Seconds()},
			"cluster-worker": {Replicas: t.replicas(workerReplicas), PerSecond: gardener.DefaultQPS, Burst: gardener.DefaultBurst},
		},
		Adapters:     []string{history.AdapterName, "gardener"},
		Sentinels:    t.replicas(sentinelReplicas),
		Interval:     sentinelInterval,
		Budget:       max(1, (t.machines+1)*budgetPercent/100), // and the node that runs Jobs
		Upgrade:      t.upgrade,
		Restore:      t.restores,
		Leaders:      []string{"execution-controller", "node-fault-controller"},
		MemoryLimits: memoryLimits(),
		StopTimeout:  stopBound,
	}
}

// runProofAndReport runs the plan and prints the report.
func runProofAndReport(ctx context.Context, p plan, dir string, log *slog.Logger) (err error) {
	t := newTopology(p, dir, log)
	_, _ = fmt.Fprintf(t.out, "proof: SEED=%d, %d clusters, %s of workload, broker %s, faults %v, files in %s\n", p.seed, p.clusters, p.duration, p.broker, p.faults, dir)
	if t.file, err = history.NewFile(t.historyPath()); err == nil {
		err = t.writeConfig(p)
	}
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	err = t.runAndRecordPlan(running, p)
	cancel()
	err = errors.Join(err, t.close(), t.file.Close())
	if err != nil {
		return fmt.Errorf("%w (history, logs in %s)", err, dir)
	}
	return t.checkHistoryAndReport()
}

func (t *topology) configPath() string { return filepath.Join(t.dir, "config.json") }

// writeConfig writes what is run and what the checkers expect, for a later check.
func (t *topology) writeConfig(p plan) error {
	cfg := t.checkerConfig()
	cfg.Run = history.Run{
		Revision: version.Get().Revision, Began: time.Now().UTC().Truncate(time.Second),
		Seed: p.seed, Clusters: p.clusters, Minutes: p.duration.Minutes(), Broker: p.broker, Bug: p.bug,
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	return os.WriteFile(t.configPath(), text, 0o644) //nolint:gosec // no secret
}

// runAndRecordPlan starts the deployment, runs the plan, and records everything until the end.
func (t *topology) runAndRecordPlan(ctx context.Context, p plan) error {
	began := time.Now()
	if err := t.start(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(t.out, "proof: %s, ready after %s\n", t.describe(), time.Since(began).Round(time.Second))
	stopRecording := t.startRecording(ctx)
	state, err := t.runPlanUntilSettled(ctx, p)
	if err := errors.Join(err, stopRecording()); err != nil {
		return err
	}
	for _, record := range state {
		t.file.Add(record)
	}
	return t.recordAuditWrites()
}

// startRecording records events, cordons and usage in the background, until stop is called.
func (t *topology) startRecording(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var recorders errgroup.Group
	recorders.Go(func() error { return t.recordEvents(ctx) })
	recorders.Go(func() error { return t.recordNodeCordons(ctx) })
	for _, record := range []func(context.Context){t.recordUsage, t.recordAPIServerOutages} {
		recorders.Go(func() error {
			record(ctx)
			return nil
		})
	}
	return func() error {
		cancel()
		if err := recorders.Wait(); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		return nil
	}
}

// A planRun is the workload and the faults of a plan that runs.
type planRun struct {
	*topology
	plan     plan
	load     *workload
	injector *faults.Injector
	began    time.Time
}

// runPlanUntilSettled runs the workload and the faults, waits until all components agree again, and returns the
// final state.
func (t *topology) runPlanUntilSettled(ctx context.Context, p plan) (finalState, error) {
	if err := t.createFakeNodes(ctx, p.machines()); err != nil {
		return nil, err
	}
	load, err := t.newWorkload(p)
	if err != nil {
		return nil, err
	}
	run := &planRun{topology: t, plan: p, load: load, injector: t.newInjector(), began: time.Now()}
	stopReading := runInBackground(ctx, load.recordListsUntilDone)
	defer stopReading()
	stopOverwriting := runInBackground(ctx, run.permitShootOverwritesUntilDone)
	defer stopOverwriting()
	if err := run.runLoadAndFaults(ctx); err != nil {
		return nil, err
	}
	run.printProgress("the workload and the faults have ended")
	if err := poll(ctx, startBound, t.checkReady); err != nil {
		return nil, fmt.Errorf("after the faults: %w", err)
	}
	state, err := t.waitUntilSettled(ctx, p.settleBound(), run.printProgress)
	if err != nil {
		return nil, fmt.Errorf("read the final state: %w", err)
	}
	pauseFor(ctx, progressEvery) // the last change events are on their way
	return state, nil
}

// runLoadAndFaults runs the workload, the faults and the upgrade until all have ended, or the upgrade has failed.
func (r *planRun) runLoadAndFaults(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	stopProgress := runInBackground(ctx, r.printProgressUntilDone)
	defer stopProgress()

	var running sync.WaitGroup
	running.Go(func() { r.load.run(ctx, newSchedule(r.plan)) })
	running.Go(func() { r.runExecutions(ctx, r.plan) })
	running.Go(func() { r.reportNodeFaultsAndRecoveries(ctx, r.plan) })
	running.Go(func() {
		r.injector.Run(ctx, r.plan.duration, faults.NewSchedule(r.plan.seed, r.plan.duration, r.plan.faults))
	})
	if r.upgrade {
		running.Go(func() {
			if err := r.runUpgrade(ctx, r.plan.duration); err != nil {
				fail(fmt.Errorf("upgrade: %w", err))
			}
		})
	}
	if r.restores {
		running.Go(func() {
			if err := r.backUpAndRestore(ctx); err != nil {
				fail(fmt.Errorf("restore: %w", err))
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

func (r *planRun) printProgressUntilDone(ctx context.Context) {
	for pauseFor(ctx, progressEvery) {
		r.printProgress("")
	}
}

func (r *planRun) printProgress(note string) {
	_, _ = fmt.Fprintf(r.out, "proof: %4.0f s  sent %d, pending %d, failed %d, unknown %d, skipped %d, faults %d  %s\n",
		time.Since(r.began).Seconds(), r.load.sent.Load(), r.load.pending.Load(), r.load.failed.Load(), r.load.unknown.Load(),
		r.load.skipped.Load(), r.injector.CountInjected(), note)
}

// runInBackground calls f with a context that stop ends. stop waits until f has returned.
func runInBackground(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (t *topology) recordAuditWrites() error {
	writes, err := readWorkerWritesFromAudit(t.auditPath())
	for _, w := range writes {
		t.file.Add(w)
	}
	return err
}

// checkHistoryAndReport checks the history, and prints and writes the report.
func (t *topology) checkHistoryAndReport() error {
	records, err := history.ReadFile(t.historyPath())
	if err != nil {
		return err
	}
	text, err := os.ReadFile(t.configPath())
	if err != nil {
		return err
	}
	var cfg history.Config
	if err := json.Unmarshal(text, &cfg); err != nil {
		return err
	}
	results := history.RunAllCheckers(cfg, records)
	summary := history.Summarize(cfg.Run, results, records)
	if text, err = json.MarshalIndent(summary, "", "  "); err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(t.dir, "summary.json"), append(text, '\n'), 0o644); err != nil { //nolint:gosec // no secret
		return err
	}
	out, err := os.Create(filepath.Join(t.dir, "report.txt"))
	if err != nil {
		return err
	}
	err = history.WriteReport(out, summary, results)
	err = errors.Join(err, out.Close(), history.WriteReport(t.out, summary, results))
	_, _ = fmt.Fprintf(t.out, "\nproof: history in %s\n", t.historyPath())
	return errors.Join(err, t.checkViolationsMatchBug(results))
}

// checkViolationsMatchBug returns an error if a promise was broken, or if a bug is planted and its promise was not.
func (t *topology) checkViolationsMatchBug(results []history.Result) error {
	for _, r := range results {
		number, _, _ := strings.Cut(r.Promise, " ")
		if len(r.Violations) > 0 && (t.bug == "" || t.bug == number) {
			if t.bug != "" {
				_, _ = fmt.Fprintf(t.out, "proof: the planted bug %s was found\n", t.bug)
				return nil
			}
			return errViolations
		}
	}
	if t.bug != "" {
		return fmt.Errorf("the planted bug %s was not found", t.bug)
	}
	return nil
}
