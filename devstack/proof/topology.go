package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

const (
	apiReplicas      = 3
	sentinelReplicas = 4
	adapterReplicas  = 2
	workerReplicas   = 3

	// startBound is the longest time that a process may take to become ready on a busy machine.
	startBound = 3 * time.Minute
)

// A topology is the whole deployment. Every process of the product runs as in production, with the
// default settings of the chart.
type topology struct {
	dir  string
	self string // path of this program, which is also that of the NATS servers
	file *history.File
	out  io.Writer // for people
	log  *slog.Logger

	database  *database
	balancer  *faults.Proxy // in front of the fleet API
	apiAddrs  []string      // of its replicas
	authority *authority
	tokens    map[string]string // by subject
	proxies   []*faults.Proxy
	broker    string // brokerNATS or brokerRabbitMQ
	brokerURL string // for clients
	kube      *kubebed.Bed
	garden    *gardenbed.Bed
	sink      *changeEventSink
	simulated sync.WaitGroup // what plays Gardener and a node
	people    hostClients
	intake    *faults.Proxy // in front of the node fault controllers

	single   bool // one replica of each component
	upgrade  bool
	restores bool // the database is restored once
	restored *restoreRecorder

	orphanEnv map[string]string // of the cluster-workers if restores is set
	latest    release           // of this source
	previous  release           // if upgrade is set
	bug       string            // promise that a planted bug breaks; empty means none
	first     release           // that is installed and started

	limitDisks bool    // for the fault that fills them
	disks      []*disk // of the broker servers

	stepClocks    bool  // for the fault that sets them
	databaseClock clock // empty if it cannot be set

	machines  int     // nodes without machines
	eventRate float64 // maximum events per second of each sentinel

	publishedCache int // entries of each sentinel's cache of published events; zero means the default

	mu         sync.Mutex
	executions []*history.Execution
	mounted    []*disk

	lastPort int // that newFreeAddress returned

	order  []string // names of the groups, in the order of their start
	groups map[string][]*process
}

// newTopology returns a deployment that is not started.
func newTopology(p plan, dir string, log *slog.Logger) *topology {
	t := &topology{
		dir: dir, out: os.Stdout, log: log, upgrade: p.upgrade, broker: p.broker, bug: p.bug, machines: p.machines(),
		limitDisks: slices.Contains(p.faults, faults.Disk), stepClocks: slices.Contains(p.faults, faults.Clock),
	}
	t.restores = !p.upgrade && slices.Contains(p.faults, faults.Restore)
	t.orphanEnv = orphanEnv(p.duration)
	t.restored = newRestoreRecorder(func(r history.Record) { t.file.Add(r) })
	t.eventRate = p.eventRate(t.replicas(sentinelReplicas))
	return t
}

// start starts everything and waits until it is ready. The caller must call close, also after an
// error.
func (t *topology) start(ctx context.Context) (err error) {
	if t.self, err = os.Executable(); err != nil {
		return err
	}
	return t.runStepsThenAwaitReady(ctx, []startStep{
		{"build the programs", t.buildReleases},
		{"start PostgreSQL", t.startDatabaseWithStandby},
		{"start the fleet API", t.startAPIReplicasAndBalancer},
		{"start the broker", t.startBroker},
		{"start the sink", t.startSink},
		{"start Kubernetes", t.startKubernetes},
		{"start Gardener", t.startGarden},
		{"install the manifests", t.installManifests},
		{"start the sentinels", t.startSentinels},
		{"start the adapters", t.startAdapters},
		{"start the cluster-workers", t.startClusterWorkers},
		{"start the execution controllers", t.startExecutionControllers},
		{"start the node fault controllers", t.startNodeFaults},
	})
}

// A startStep is a part of the start.
type startStep struct {
	name string
	run  func(context.Context) error
}

// runStepsThenAwaitReady runs the steps of the start, and waits until everything is ready.
func (t *topology) runStepsThenAwaitReady(ctx context.Context, steps []startStep) error {
	t.groups = map[string][]*process{}
	for _, s := range steps {
		began := time.Now()
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		t.log.InfoContext(ctx, "step done", "step", s.name, "took", time.Since(began).Round(time.Millisecond))
	}
	return poll(ctx, startBound, t.checkReady)
}

// replicas returns the number of replicas of a component. Two replicas run both releases.
func (t *topology) replicas(usualCount int) int {
	if t.single {
		return 1
	}
	if t.upgrade {
		return 2
	}
	return usualCount
}

// newProcess returns a process that is not started. It has a separate log.
func (t *topology) newProcess(name, path string, args ...string) *process {
	p := &process{name: name, path: path, args: args, env: map[string]string{}, dir: t.dir, file: t.file, release: t.first}
	if limit := memoryLimits()[path]; limit > 0 {
		p.env["GOMEMLIMIT"] = fmt.Sprintf("%dMiB", limit>>20*9/10) // as the chart sets it
	}
	return p
}

// startInGroup starts a process and makes it a target of faults.
func (t *topology) startInGroup(ctx context.Context, group string, p *process) error {
	if t.groups[group] == nil {
		t.order = append(t.order, group)
	}
	t.groups[group] = append(t.groups[group], p)
	if t.stepClocks {
		var err error
		if p.clock, err = newClock(filepath.Join(t.dir, p.name+".clock")); err != nil {
			return err
		}
		p.env[clockEnv] = string(p.clock)
	}
	return p.start(ctx)
}

// startReplicas starts replicas of a binary. set completes the arguments and the environment of each.
func (t *topology) startReplicas(ctx context.Context, name string, count int, configure func(p *process, health string)) error {
	for i := range t.replicas(count) {
		health, err := t.newFreeAddress(ctx)
		if err != nil {
			return err
		}
		p := t.newProcess(fmt.Sprintf("%s-%d", name, i), name)
		p.health, p.metric = health, health
		p.env["HEALTH_PROBE_BIND_ADDRESS"] = health
		p.env["METRICS_BIND_ADDRESS"] = health
		configure(p, health)
		if err := t.startInGroup(ctx, name, p); err != nil {
			return err
		}
	}
	return nil
}

// checkReady returns why a process is not ready.
func (t *topology) checkReady(ctx context.Context) error {
	for _, group := range t.order {
		for _, p := range t.groups[group] {
			if err := p.checkReady(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return nil
}

// startAPIReplicasAndBalancer starts the replicas of the fleet API behind a balancer.
func (t *topology) startAPIReplicasAndBalancer(ctx context.Context) error {
	if err := t.createCredentials(); err != nil {
		return err
	}
	certFile, keyFile := certificatePaths(t.dir)
	var backends []*faults.Backend
	for i := range t.replicas(apiReplicas) {
		listen, err := t.newFreeAddress(ctx)
		if err != nil {
			return err
		}
		health, err := t.newFreeAddress(ctx)
		if err != nil {
			return err
		}
		metrics, err := t.newFreeAddress(ctx)
		if err != nil {
			return err
		}
		p := t.newProcess(fmt.Sprintf("fleet-api-%d", i), "fleet-api",
			"--listen-address="+listen, "--metrics-bind-address="+metrics, "--health-probe-bind-address="+health,
			"--auth-mode=bearer", "--auth-token-file="+tokensPath(t.dir), "--tls-cert-file="+certFile, "--tls-key-file="+keyFile, "--migrate=true")
		p.health, p.metric = health, metrics
		p.env["DATABASE_URL"] = t.database.clientURL()
		p.env["FLEET_API_REQUIRED_ADAPTERS_CLUSTERS"] = history.AdapterName + ",gardener"
		p.env["FLEET_API_REQUIRED_ADAPTERS_NODEPOOLS"] = history.AdapterName + ",gardener"
		if err := t.startInGroup(ctx, "fleet-api", p); err != nil {
			return err
		}
		t.apiAddrs = append(t.apiAddrs, listen)
		backends = append(backends, &faults.Backend{Addr: listen, Probe: p.checkReady})
	}
	var err error
	if t.balancer, err = faults.NewProxy(ctx, "fleet-api", backends...); err != nil {
		return err
	}
	t.proxies = append(t.proxies, t.balancer)
	return poll(ctx, startBound, t.checkReady)
}

// createCredentials writes the first tokens and the first certificate.
func (t *topology) createCredentials() (err error) {
	t.tokens = newTokens()
	if t.authority, err = newAuthority(t.dir); err != nil {
		return err
	}
	return errors.Join(writeServerTokenFile(t.dir, t.tokens), writeClientTokens(t.dir, t.tokens), t.authority.issueServerCertificate())
}

// apiURL returns the URL of the balancer, or of the only replica.
func (t *topology) apiURL() string {
	if t.single {
		return "https://" + t.apiAddrs[0]
	}
	return "https://" + t.balancer.Addr()
}

// apiEnv returns the settings of a client of the fleet API.
func (t *topology) apiEnv(subject string) map[string]string {
	return map[string]string{
		"HYPERFLEET_API_ENDPOINT": t.apiURL(), "HYPERFLEET_API_TOKEN_FILE": tokenPath(t.dir, subject), "HYPERFLEET_API_CA_FILE": caPath(t.dir),
	}
}

// newClient returns a client of the fleet API with the token of a subject.
func (t *topology) newClient(subject string) (*fleetclient.Client, error) {
	return fleetclient.New(
		fleetclient.Config{Endpoint: t.apiURL(), Token: fleetclient.FileToken(tokenPath(t.dir, subject)), CAFile: caPath(t.dir)},
	)
}

// startAdapters starts adapters that share a subscription.
func (t *topology) startAdapters(ctx context.Context) error {
	return t.startReplicas(ctx, "adapter", adapterReplicas, func(p *process, _ string) {
		maps.Copy(p.env, map[string]string{
			"BROKER_TYPE": t.broker, "BROKER_URL": t.brokerURL, "BROKER_TOPIC": brokerTopic, "BROKER_QUEUE_TYPE": quorumQueue,
			history.PathEnv: t.historyPath(),
		})
		maps.Copy(p.env, t.apiEnv("adapter"))
		if t.single {
			p.env["PROOF_ADAPTER_INSTANT"] = "true"
			p.env[history.PathEnv] = os.DevNull
		}
	})
}

func (t *topology) historyPath() string { return filepath.Join(t.dir, "history.jsonl") }

// processes returns all processes whose group is one of names; none means all.
func (t *topology) processes(names ...string) []*process {
	var list []*process
	for _, group := range t.order {
		if len(names) == 0 || slices.Contains(names, group) {
			list = append(list, t.groups[group]...)
		}
	}
	return list
}

// describe counts the processes.
func (t *topology) describe() string {
	parts := []string{"1 PostgreSQL primary and 1 synchronous standby"}
	for _, group := range t.order {
		parts = append(parts, fmt.Sprintf("%d %s", len(t.groups[group]), group))
	}
	return strings.Join(append(parts, "1 kube-apiserver, 1 gardener-apiserver, 1 sink"), ", ")
}

// close ends everything in reverse order. The context of start must have ended.
func (t *topology) close() error {
	for _, group := range slices.Backward(t.order) {
		for _, p := range t.groups[group] {
			p.close()
		}
	}
	for _, p := range t.processes() {
		p.watching.Wait()
	}
	var errs []error
	t.simulated.Wait()
	if t.garden != nil {
		errs = append(errs, t.garden.Stop())
	}
	if t.kube != nil {
		errs = append(errs, t.kube.Stop())
	}
	if t.sink != nil {
		errs = append(errs, t.sink.close())
	}
	for _, p := range t.proxies {
		p.Close()
	}
	if t.database != nil {
		errs = append(errs, t.database.close())
	}
	for _, d := range t.mounted { // the servers have ended
		errs = append(errs, d.unmountKeepingCopies())
	}
	return errors.Join(errs...)
}
