// Package fleettest provides a cluster for tests of executions. It consists of a real API
// server with the Job controllers, a scheduler and a node, the shipped admission policies and
// roles, PostgreSQL, and the execution controller as a separate process. A test can also take
// the role of the node and the Job controllers.
//
// RunCoreTests contains the tests for every kind of node.
//
// All tests of a process share the cluster. Start gives each test a fleet with separate
// namespaces, users and a controller. Everything that a fleet starts ends with the test, or
// with the process if that is killed.
package fleettest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/devstack/realnode"
	"github.com/fleetloop/fleetloop/devstack/remediation"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// Images for the controller. Only Runner is available on a real node.
const (
	Runner  = "localhost/fleetloop/action-runner:test"
	Gated   = "localhost/fleetloop/gated:test"   // the runner, after a call of Fleet.Open
	Flaky   = "localhost/fleetloop/flaky:test"   // fails once, then runs the runner
	Failing = "localhost/fleetloop/failing:test" // fails with a transient error
	Endless = "localhost/fleetloop/endless:test" // never ends and ignores SIGTERM
	Missing = "localhost/fleetloop/missing:test" // does not exist
)

// Kind is a kind of node.
type Kind int

// Kinds of nodes.
const (
	ProcessNode Kind = iota // containers are processes of this machine
	RealNode                // a kubelet with containerd, in the namespaces of realnode.Isolate
	NoNode                  // no node and no Job controllers: the test writes the status of Jobs and Pods
)

// Main runs the tests of a package on a node of a kind and stops everything that they share. Call
// it from TestMain after RunFakeImage; on a real node, call it in the inner program.
func Main(m *testing.M, kind Kind) {
	current = newShared(kind)
	pgtest.Main(closing{m})
}

// closing stops the shared parts after the tests and before the check for leftovers.
type closing struct{ *testing.M }

// Run runs the tests.
func (c closing) Run() int {
	code := c.M.Run()
	if err := current.closeAll(); err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("end what the tests share", "err", err)
		return max(code, 1)
	}
	return code
}

//nolint:gochecknoglobals // one cluster per test process; testing offers no other place to keep it
var current *shared

// shared holds the parts that all tests of a process share.
type shared struct {
	kind  Kind
	start func() error

	bed  *kubebed.Bed
	dir  string // directory of the binaries
	said func() string

	mu      sync.Mutex
	fleets  int
	closers []func() error
}

func newShared(kind Kind) *shared {
	s := &shared{kind: kind, said: func() string { return "" }}
	s.start = sync.OnceValue(s.buildBinariesAndStartCluster)
	return s
}

func (s *shared) addCleanup(f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, f)
}

func (s *shared) closeAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first error
	for _, f := range slices.Backward(s.closers) { // in reverse order: later parts use earlier ones
		if err := f(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// buildBinariesAndStartCluster starts the cluster and its node.
func (s *shared) buildBinariesAndStartCluster() error {
	ctx := context.Background()
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	if err := s.buildBinaries(ctx); err != nil {
		return err
	}
	// A first build of Kubernetes takes minutes. Log it, so that it does not look like a hang.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var o kubebed.Options
	switch s.kind {
	case ProcessNode:
		o = kubebed.Options{Controllers: kubebed.JobControllers(), Scheduler: true}
	case RealNode:
		o = realnode.BedOptions()
	case NoNode:
	}
	// It sets the status of Deployments. No controller handles ReplicaSets, so they
	// never have Pods.
	o.Controllers = append(o.Controllers, "deployment-controller")
	o.Log = log
	var err error
	if s.bed, err = kubebed.Start(ctx, o); err != nil {
		return err
	}
	s.addCleanup(s.bed.Stop)
	for _, crd := range [][]byte{deploy.KubernetesExecutionCRD, remediation.CRD} {
		if err := s.bed.InstallCRDText(ctx, crd); err != nil {
			return err
		}
	}
	switch s.kind {
	case ProcessNode:
		return s.startProcessNode()
	case RealNode:
		return s.startRealNode(ctx)
	case NoNode:
	}
	return nil
}

// buildBinaries builds the binaries in the same way as a release.
func (s *shared) buildBinaries(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "fleetloop-executions-"); err != nil {
		return err
	}
	s.addCleanup(func() error { return os.RemoveAll(s.dir) })
	return kubebedtest.BuildBinaries(ctx, s.dir, "execution-controller", "action-runner")
}

func (s *shared) binaryPath(name string) string { return filepath.Join(s.dir, name) }

// startRealNode starts a kubelet.
func (s *shared) startRealNode(ctx context.Context) error {
	archive := filepath.Join(s.dir, "runner.tar")
	f, err := os.Create(archive) //nolint:gosec // our own folder
	if err != nil {
		return err
	}
	err = realnode.WriteImage(f, Runner, s.binaryPath("action-runner"))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	node, err := realnode.Start(ctx, s.bed, realnode.Options{Images: []string{archive}})
	if err != nil {
		return err
	}
	s.said = node.LogTails
	s.addCleanup(node.Stop)
	return nil
}

// startProcessNode runs a node in this process.
func (s *shared) startProcessNode() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runner := s.binaryPath("action-runner")
	images := map[string][]string{Runner: {runner}}
	for name, play := range map[string]string{Gated: playGated, Flaky: playFlaky, Failing: playFailing, Endless: playEndless} {
		images[name] = []string{self, play, s.dir, runner}
	}
	return s.runNodeInBackground(s.bed.Config(), processnode.Options{Images: images})
}

func (s *shared) runNodeInBackground(cfg *rest.Config, o processnode.Options) error {
	node, err := processnode.New(cfg, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	s.addCleanup(func() error {
		cancel()
		return <-ended
	})
	return nil
}
