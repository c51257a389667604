package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
)

const reconfigurations = 40

// reconfigureBench measures the delay from a change of a SentinelConfig until the first round with
// it has started and been read. It uses a real Kubernetes API server, the operator as the sentinel
// binary runs it, and two NATS servers. Every other change switches to the other broker, which must
// connect first.
func reconfigureBench() bench {
	const name = "operator.reconfigure_ms"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		took, err := measureReconfigure(ctx, progress)
		if err != nil {
			return nil, err
		}
		var same, moved []float64
		for i, ms := range took {
			if i%2 == 0 {
				same = append(same, ms)
			} else {
				moved = append(moved, ms)
			}
		}
		_, _ = fmt.Fprintf(progress, "%d changes: median %.1f ms on the same broker, %.1f ms to another, longest %.1f ms\n",
			len(took), computeMedian(same), computeMedian(moved), slices.Max(took))
		return []line{{kind: "value", name: name, value: computeMedian(took), unit: "ms", op: "<=", want: 500}}, nil
	}}
}

// measureReconfigure changes a SentinelConfig many times, and returns the duration of each change,
// in milliseconds.
func measureReconfigure(ctx context.Context, progress io.Writer) (tookMs []float64, err error) {
	_, _ = fmt.Fprintln(progress, "starting a control plane")
	bed, err := kubebed.Start(ctx, kubebed.Options{CRDs: []string{"deploy/crds"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Stop()) }()
	dir, remove, err := tempDir()
	if err != nil {
		return nil, err
	}
	defer remove()
	quiet := slog.New(slog.DiscardHandler)
	var brokers []string
	for _, name := range []string{"one", "other"} {
		server, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, name)}, quiet)
		if err != nil {
			return nil, err
		}
		defer server.Stop()
		brokers = append(brokers, server.URL())
	}
	seen := &selectorRecorder{at: map[string]time.Time{}, fleet: newServedFleet(thousand, time.Now()), moved: make(chan struct{})}
	web := httptest.NewServer(seen)
	defer web.Close()
	stop, err := startOperatorInBackground(ctx, bed.Config())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return measureReconfigurations(ctx, bed.Config(), web.URL, brokers, seen)
}

// startOperatorInBackground runs an operator of the namespace "default".
func startOperatorInBackground(ctx context.Context, host *rest.Config) (stop func() error, err error) {
	p, err := process.New(ctx, "sentinel", process.Config{
		MetricsAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0", StopTimeout: time.Minute,
	}, io.Discard)
	if err != nil {
		return nil, err
	}
	parts, live, err := sentinelapp.Operator{Host: host, Namespace: metav1.NamespaceDefault, Name: benched}.BuildParts(p) //nolint:contextcheck // it is given one below
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(running, live, parts...) }()
	return func() error {
		cancel()
		return <-done
	}, nil
}

// benched is the name of the object.
const benched = "benched"

// measureReconfigurations changes the object repeatedly.
func measureReconfigurations(
	ctx context.Context,
	host *rest.Config,
	endpoint string,
	brokers []string,
	seen *selectorRecorder,
) (tookMs []float64, err error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	api, err := client.New(host, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	sc := &v1alpha1.SentinelConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: benched},
		Spec: v1alpha1.SentinelConfigSpec{
			ResourceType: "clusters", HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: endpoint}, PollInterval: "5s",
			ShardSelector: &v1alpha1.ShardSelector{MatchLabels: map[string]string{"change": "0"}},
			Broker:        v1alpha1.Broker{Type: v1alpha1.BrokerNATS, Topic: "events", URL: brokers[0]},
		},
	}
	if err := api.Create(ctx, sc); err != nil {
		return nil, err
	}
	if _, err := seen.awaitAnswer(ctx, "change=0"); err != nil {
		return nil, err
	}
	var took []float64
	for i := range reconfigurations {
		before := sc.DeepCopy()
		change := fmt.Sprint(i + 1)
		sc.Spec.ShardSelector.MatchLabels["change"] = change
		sc.Spec.Broker.URL = brokers[(i+1)/2%2]
		begin := time.Now()
		if err := api.Patch(ctx, sc, client.MergeFrom(before)); err != nil {
			return nil, err
		}
		end, err := seen.awaitAnswer(ctx, "change="+change)
		if err != nil {
			return nil, err
		}
		took = append(took, float64(end.Sub(begin))/float64(time.Millisecond))
	}
	return took, nil
}

// selectorRecorder is a fleet that records when it first answered a selector.
type selectorRecorder struct {
	fleet http.Handler

	mu    sync.Mutex
	at    map[string]time.Time
	moved chan struct{} // closed and replaced when a new selector arrives
}

// ServeHTTP serves the fleet.
func (s *selectorRecorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.fleet.ServeHTTP(w, r)
	labels := strings.TrimSpace(r.URL.Query().Get("labels"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.at[labels]; !known {
		s.at[labels] = time.Now()
		close(s.moved)
		s.moved = make(chan struct{})
	}
}

// awaitAnswer waits until a selector has been answered, and returns when that was.
func (s *selectorRecorder) awaitAnswer(ctx context.Context, labels string) (time.Time, error) {
	for {
		s.mu.Lock()
		at, moved := s.at[labels], s.moved
		s.mu.Unlock()
		if !at.IsZero() {
			return at, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return at, fmt.Errorf("no round under %q: %w", labels, context.Cause(ctx))
		}
	}
}
