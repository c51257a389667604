package nodefaultapp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/budget"
	"github.com/fleetloop/fleetloop/internal/nodefault/drain"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/janitor"
	"github.com/fleetloop/fleetloop/internal/nodefault/operator"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
	"github.com/fleetloop/fleetloop/internal/nodefault/remediation"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
)

const (
	// userAgent is the User-Agent of requests.
	userAgent = "fleetloop-node-fault-controller"
	// source is the default source of change events.
	source = changeevent.SourceFaultQuarantine
)

// Overrides replaces configured dependencies of the controller. The zero value replaces none.
type Overrides struct {
	// Host replaces the configured cluster.
	Host *rest.Config
	// Sinks replaces the configured sinks. The caller closes them.
	Sinks *changes.Sinks
	// Listening receives the address on which reports are accepted.
	Listening func(addr string)
}

// app holds the dependencies of the parts.
type app struct {
	cfg       Part
	p         *process.Process
	host      *rest.Config
	core      kubernetes.Interface
	sinks     *changes.Sinks
	intake    *intake.Metrics
	scheme    *runtime.Scheme
	listening func(addr string) // may be nil

	// store is nil until getOrCreateFaultStore has created it.
	store *intake.FaultStore
	// nodes and nodeAt read the cache of the controller. They are nil in a process without the controller.
	nodes  client.Reader
	nodeAt func(ctx context.Context, address string) (name string, err error)
}

// BuildParts returns the parts of the node fault controller in order of dependency.
func BuildParts(ctx context.Context, p *process.Process, cfg Part, overrides Overrides) (parts []lifecycle.Part, err error) {
	if err := cfg.validateSettings(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lifecycle.CloseAll(parts...))
			parts = nil
		}
	}()
	a := &app{
		cfg:       cfg,
		p:         p,
		host:      overrides.Host,
		sinks:     overrides.Sinks,
		listening: overrides.Listening,
		scheme:    runtime.NewScheme(),
		intake:    intake.NewMetrics(p.Metrics),
	}
	if err := errors.Join(operator.AddToScheme(a.scheme), janitor.AddToScheme(a.scheme)); err != nil {
		return nil, err
	}
	if a.host == nil {
		if a.host, err = kube.NewRESTConfig(cfg.Kube, userAgent); err != nil {
			return nil, err
		}
	}
	if a.core, err = kubernetes.NewForConfig(a.host); err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	if a.sinks == nil {
		a.sinks, err = changes.New(cfg.toSinksConfig(), source, p, changes.LeaveRetriesToSender) //nolint:contextcheck // the sinks outlive the call
		if err != nil {
			return nil, err
		}
		parts = append(parts, a.sinks.Part())
	}
	roleParts, err := a.buildPartsOfRoles(ctx)
	return append(parts, roleParts...), err
}

// buildPartsOfRoles builds the parts of the configured roles. The controller comes first, because the intake uses its
// cache. After an error, the caller closes the parts.
func (a *app) buildPartsOfRoles(ctx context.Context) (parts []lifecycle.Part, err error) {
	if a.cfg.hasRole(roleController) {
		controllerParts, err := a.buildControllerAndSetNodes(ctx)
		if err != nil {
			return parts, err
		}
		parts = append(parts, controllerParts...)
	}
	if a.cfg.hasRole(roleJanitor) {
		janitorParts, err := a.newJanitorPartsUnlessDryRun(ctx)
		if err != nil {
			return parts, err
		}
		parts = append(parts, janitorParts...)
	}
	if a.cfg.hasRole(roleIntake) {
		serverParts, err := a.listenForFaultReports(ctx)
		parts = append(parts, serverParts...)
		if err != nil {
			return parts, err
		}
	}
	return parts, nil
}

// kubeOptionsWithLease returns the access of a manager or client to the host cluster. lease is the name for the leader
// election, and empty without one.
func (a *app) kubeOptionsWithLease(lease string) kube.Options {
	namespaced, clusterScoped := janitor.Kinds()
	o := kube.Options{
		Scheme:        a.scheme,
		Namespaced:    namespaced,
		ClusterScoped: append(operator.Kinds(), clusterScoped...),
		Cache:         cache.Options{ByObject: operator.CacheOptions(), ReaderFailOnMissingInformer: true},
		Log:           a.p.Log,
	}
	if a.cfg.Elect && lease != "" {
		o.Leader = kube.Leader{Namespace: a.cfg.Namespace, Name: lease}
	}
	return o
}

// getOrCreateFaultStore returns the store of reports.
func (a *app) getOrCreateFaultStore() (*intake.FaultStore, error) {
	if a.store != nil {
		return a.store, nil
	}
	c, err := kube.NewClient(a.host, a.kubeOptionsWithLease(""))
	if err != nil {
		return nil, err
	}
	a.store, err = intake.NewFaultStore(a.cfg.Intake.Store, intake.StoreDeps{Live: c, Write: c, Nodes: a.nodes, Log: a.p.Log})
	return a.store, err
}

// buildControllerAndSetNodes builds the parts that manage nodes.
func (a *app) buildControllerAndSetNodes(ctx context.Context) ([]lifecycle.Part, error) {
	m, err := kube.NewManager(a.host, a.kubeOptionsWithLease(nodefault.ControllerLease)) //nolint:contextcheck // the manager outlives the call
	if err != nil {
		return nil, err
	}
	a.nodes = m.GetClient()
	core, err := kubernetes.NewForConfig(m.GetConfig()) // only the leader writes
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	ruleSet, err := rules.Compile(a.cfg.configuredRulesOrDefaults())
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	nodes, err := newIndexedNodeView(ctx, m.GetCache())
	if err != nil {
		return nil, err
	}
	a.nodeAt = intake.NewestNodeNameByAddressFunc(nodes.findNodesByAddress)

	deps, err := a.newOperatorDeps(m, core, nodes, ruleSet)
	if err != nil {
		return nil, err
	}
	cfg := operator.Config{TTL: a.cfg.Retention, Outbox: a.cfg.toOutboxConfig(a.p.StopTimeout())}
	o, err := operator.Add(m, cfg, deps)
	if err != nil {
		return nil, err
	}
	if err := a.addConditionController(m); err != nil {
		return nil, err
	}
	return []lifecycle.Part{kube.NewManagerPart("node fault controller", m, o.Ready)}, nil
}

// newOperatorDeps builds what the controller does with a node: quarantine, drain and remediation.
func (a *app) newOperatorDeps(
	m *kube.Manager, core kubernetes.Interface, nodes nodeView, ruleSet *rules.Set,
) (operator.Deps, error) {
	nodeBudget, err := a.newBudgetAddedIfManualReset(m, core, nodes)
	if err != nil {
		return operator.Deps{}, err
	}
	drainer := drain.New(a.cfg.Drain, core, nodes.listDrainingNodeUIDs)
	if err := drainer.RegisterMetrics(a.p.Metrics); err != nil {
		return operator.Deps{}, err
	}
	remediationConfig := a.cfg.toRemediationConfig()
	remediationConfig.Log = a.p.Log
	if verification := a.cfg.Remediation.Verification; verification.Image != "" {
		remediationConfig.Verifier, err = remediation.NewJobVerifier(remediation.VerificationConfig{
			Namespace:      a.cfg.Namespace,
			Image:          verification.Image,
			Command:        verification.Command,
			ServiceAccount: verification.ServiceAccount,
		}, core)
		if err != nil {
			return operator.Deps{}, err
		}
	}
	return operator.Deps{
		Rules:      ruleSet,
		Quarantine: quarantine.New(a.cfg.toQuarantineConfig(), nodeBudget),
		Drain:      drainer,
		Remedy:     remediation.New(remediationConfig, m.GetClient()),
		Sinks:      a.toOutboxSinks(),
		Log:        a.p.Log,
		Registerer: a.p.Metrics,
	}, nil
}

// addConditionController adds the controller that reports faults for conditions of nodes.
func (a *app) addConditionController(m *kube.Manager) error {
	conditions, err := intake.NewConditionSet(a.cfg.Conditions)
	if err != nil {
		return err
	}
	store, err := a.getOrCreateFaultStore()
	if err != nil {
		return err
	}
	return intake.AddConditionController(m, conditions, a.intake.NewCountingStore(intake.KindConditions, store), a.p.Log)
}

// newBudgetAddedIfManualReset builds the limit on the number of nodes out of service. A limit that a person resets runs as
// part of the manager.
func (a *app) newBudgetAddedIfManualReset(m *kube.Manager, core kubernetes.Interface, nodes nodeView) (quarantine.Budget, error) {
	allowance, err := budget.New(a.cfg.toBudgetConfig(), nodes.listNodes, a.p.Metrics)
	if err != nil || a.cfg.Budget.OnExhausted != budget.ManualReset {
		return allowance, err
	}
	keeper := budget.NewManualResetBudget(allowance, core.CoordinationV1(), a.cfg.Namespace, a.p.Log)
	if err := m.Add(keeper); err != nil {
		return nil, fmt.Errorf("start the budget of nodes out of service: %w", err)
	}
	return keeper, nil
}

// toOutboxSinks returns the sinks of the outbox of faults. It warns of unknown names in the setting outbox.replay.
func (a *app) toOutboxSinks() []operator.EventSink {
	var sinks []operator.EventSink
	for _, s := range a.sinks.List() {
		sinks = append(sinks, operator.EventSink{
			Name:   s.Name,
			Client: s.Client,
			Wants:  s.Wants,
			Replay: slices.Contains(a.cfg.Outbox.Replay, s.Name),
		})
	}
	for _, name := range a.cfg.Outbox.Replay {
		if !slices.ContainsFunc(sinks, func(s operator.EventSink) bool { return s.Name == name }) {
			a.p.Log.Warn("outbox.replay names an unknown sink", "sink", name)
		}
	}
	return sinks
}

// newJanitorPartsUnlessDryRun builds the parts that reboot and terminate nodes.
func (a *app) newJanitorPartsUnlessDryRun(ctx context.Context) ([]lifecycle.Part, error) {
	if a.cfg.DryRun {
		a.p.Log.InfoContext(ctx, "dry run: no node is rebooted or terminated")
		return nil, nil
	}
	m, err := kube.NewManager(a.host, a.kubeOptionsWithLease(nodefault.JanitorLease)) //nolint:contextcheck // the manager outlives the call
	if err != nil {
		return nil, err
	}
	cfg := a.cfg.toJanitorConfig()
	cfg.Log = a.p.Log
	cfg.Registerer = a.p.Metrics
	var providers janitor.Providers
	if providers.Reboot, err = a.newProvider(m.GetConfig(), a.cfg.Janitor.RebootProvider); err != nil {
		return nil, err
	}
	if providers.Terminate, err = a.newProvider(m.GetConfig(), a.cfg.Janitor.TerminateProvider); err != nil {
		return nil, err
	}
	if err := janitor.Add(m, cfg, providers); err != nil {
		return nil, err
	}
	return []lifecycle.Part{kube.NewManagerPart("janitor", m, nil)}, nil
}

// newProvider returns the provider of a kind that reboots or terminates nodes. host is the cluster of the nodes.
func (a *app) newProvider(host *rest.Config, kind string) (janitor.Provider, error) {
	var deps janitor.ProviderDeps
	var err error
	if deps.Kubernetes, err = kubernetes.NewForConfig(host); err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	if deps.Dynamic, err = dynamic.NewForConfig(host); err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	if file := a.cfg.Janitor.Machine.Kubeconfig; file != "" {
		machineCluster, err := kube.NewRESTConfig(kube.Config{Kubeconfig: file}, userAgent)
		if err != nil {
			return nil, err
		}
		if deps.Machines, err = dynamic.NewForConfig(machineCluster); err != nil {
			return nil, fmt.Errorf("create client: %w", err)
		}
	}
	return janitor.NewProvider(a.cfg.toProviderConfig(kind), deps)
}

// listenForFaultReports builds the parts that accept reports.
func (a *app) listenForFaultReports(ctx context.Context) ([]lifecycle.Part, error) {
	// What both protocols share.
	store, err := a.getOrCreateFaultStore()
	if err != nil {
		return nil, err
	}
	cfg := a.cfg.Intake
	authenticator, err := intake.NewAuthenticator(cfg.Auth, intake.AuthDeps{
		ListenAddr: cfg.Server.Addr,
		OtherAddr:  cfg.GRPC.Addr,
		Client:     a.core,
		Log:        a.p.Log,
	})
	if err != nil {
		return nil, err
	}
	limits := intake.NewCallerLimits(cfg.HTTP.Rate, cfg.HTTP.Burst)

	// HTTP.
	handler, err := intake.NewHTTPHandler(cfg.HTTP, intake.HTTPDeps{
		Store:   store,
		Auth:    authenticator,
		Metrics: a.intake,
		Callers: limits,
		NodeAt:  a.nodeAt,
		Log:     a.p.Log,
	})
	if err != nil {
		return nil, err
	}
	server, err := httpserver.NewListeningServer(ctx, cfg.Server, handler, a.p.Log)
	if err != nil {
		return nil, fmt.Errorf("listen for reports (--listen-address or LISTEN_ADDRESS): %w", err)
	}
	a.p.Log.InfoContext(ctx, "listening for fault reports", "address", server.Addr())
	if a.listening != nil {
		a.listening(server.Addr())
	}
	parts := []lifecycle.Part{{Name: "reports", Run: server.Run, Ready: server.Ready, Close: server.Close}}

	// gRPC, if it is enabled.
	if cfg.GRPC.Addr == "" && cfg.GRPC.Socket == "" {
		return parts, nil
	}
	grpcServer, err := intake.NewListeningGRPCServer(ctx, cfg.GRPC, intake.GRPCDeps{
		Store:   store,
		Auth:    authenticator,
		Metrics: a.intake,
		Callers: limits,
		Log:     a.p.Log,
	})
	if err != nil {
		return parts, err
	}
	return append(parts, grpcServer.Part("reports by gRPC")), nil
}
