package main

import (
	"context"
	"errors"
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
	adapterMode = "adapter"
	adapterName = "proof"

	adapterHistoryEnv = "PROOF_HISTORY"
	adapterHealthEnv  = "PROOF_HEALTH"

	// One reconciliation takes up to adapterWork, and one of adapterFailures fails.
	adapterWork     = 50 * time.Millisecond
	adapterFailures = 50
)

// runAdapter is the program of one adapter.
func runAdapter() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	file, err := history.NewFile(os.Getenv(adapterHistoryEnv))
	if err != nil {
		return err
	}
	a, err := adapter.New(
		adapter.Config{Name: adapterName, Collections: []string{v1.CollectionClusters}},
		adapter.ReconcilerFunc(reconcileCluster),
		adapter.Deps{Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)), OnResult: func(res adapter.Result) { recordResult(file, res) }},
	)
	if err != nil {
		return err
	}
	health := &http.Server{Addr: os.Getenv(adapterHealthEnv), ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = health.ListenAndServe() }() // without it the proof sees that the adapter is not ready
	return errors.Join(a.Run(ctx), health.Close(), file.Close())
}

// reconcileCluster takes some time and sometimes fails, as adapters do.
func reconcileCluster(ctx context.Context, r adapter.Resource) (adapter.Report, error) {
	if !pauseFor(ctx, rand.N(adapterWork)) { //nolint:gosec // not a secret
		return adapter.Report{}, ctx.Err()
	}
	if rand.N(adapterFailures) == 0 { //nolint:gosec // not a secret
		return adapter.Report{}, errors.New("the outside world does not answer")
	}
	if r.Deleting() {
		return adapter.Finalized("nothing is left"), nil
	}
	return adapter.Available("done"), nil
}

func recordResult(file *history.File, res adapter.Result) {
	file.Add(history.Record{Event: parseEvent("adapter", res.Event.ID, time.Time{}, res.Event.Data)})
	if res.Outcome == adapter.OutcomeReported {
		file.Add(history.Record{Report: &history.Report{Adapter: adapterName, ClusterID: res.ResourceID, Generation: res.Report.ObservedGeneration}})
	}
}
