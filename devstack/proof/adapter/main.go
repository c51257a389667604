// Command adapter is an adapter of the proof. It takes some time and sometimes fails, as adapters do.
//
// It imports only the public kit and the history, so that it can be built from an older release's kit.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

const (
	// One reconciliation takes up to workTime, and one of failureShare fails.
	workTime     = 50 * time.Millisecond
	failureShare = 50

	// instantEnv makes the adapter report at once, with instantConcurrency calls at a time.
	instantEnv         = "PROOF_ADAPTER_INSTANT"
	instantConcurrency = 64
)

func main() {
	if err := runAdapter(); err != nil {
		fmt.Fprintln(os.Stderr, "adapter:", err)
		os.Exit(1)
	}
}

func runAdapter() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	file, err := history.NewFile(os.Getenv(history.PathEnv))
	if err != nil {
		return err
	}
	reconcile, concurrency := simulateUnreliableReconcile, 0 // the default
	if os.Getenv(instantEnv) != "" {
		reconcile, concurrency = reportAtOnce, instantConcurrency
	}
	a, err := adapter.New(
		adapter.Config{Name: history.AdapterName, Collections: []string{v1.CollectionClusters, v1.CollectionNodePools}, Concurrency: concurrency},
		adapter.ReconcilerFunc(reconcile),
		adapter.Deps{Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)), OnResult: func(res adapter.Result) { recordResult(file, res) }},
	)
	if err != nil {
		return err
	}
	health := &http.Server{Addr: os.Getenv("HEALTH_PROBE_BIND_ADDRESS"), ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = health.ListenAndServe() }() // without it the proof sees that the adapter is not ready
	return errors.Join(a.Run(ctx), health.Close(), file.Close())
}

func simulateUnreliableReconcile(ctx context.Context, r adapter.Resource) (adapter.Report, error) {
	timer := time.NewTimer(rand.N(workTime)) //nolint:gosec // not a secret
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return adapter.Report{}, ctx.Err()
	case <-timer.C:
	}
	if rand.N(failureShare) == 0 { //nolint:gosec // not a secret
		return adapter.Report{}, errors.New("the outside world does not answer")
	}
	if r.Deleting() {
		return adapter.Finalized("nothing is left"), nil
	}
	return adapter.Available("done"), nil
}

// reportAtOnce does no work, so that a run measures the product.
func reportAtOnce(_ context.Context, r adapter.Resource) (adapter.Report, error) {
	if r.Deleting() {
		return adapter.Finalized("nothing is left"), nil
	}
	return adapter.Available("done"), nil
}

func recordResult(file *history.File, res adapter.Result) {
	file.Add(history.Record{Event: history.ParseEvent("adapter", res.Event.ID, time.Time{}, res.Event.Data)})
	if res.Outcome == adapter.OutcomeReported {
		file.Add(
			history.Record{
				Report: &history.Report{Adapter: history.AdapterName, ClusterID: res.ResourceID, Generation: res.Report.ObservedGeneration},
			},
		)
	}
}
