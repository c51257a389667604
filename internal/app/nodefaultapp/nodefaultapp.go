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
	cfg    Part
	p      *process.Process
	host   *rest.Config
	core   kubernetes.Interface
	sinks  *changes.Sinks
	store  *intake.FaultStore
	intake *intake.Metrics
	scheme *runtime.Scheme
	nodes  client.Reader                                                      // nil without a cache
	nodeAt func(ctx context.Context, address string) (name string, err error) // nil if unknown

	listening func(addr string)
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
	a := &app{cfg: cfg, p: p, host: overrides.Host, sinks: overrides.Sinks, listening: overrides.Listening, scheme: runtime.NewScheme(), intake: intake.NewMetrics(p.Metrics)}
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
		if a.sinks, err = changes.New(cfg.toSinksConfig(), source, p, changes.LeaveRetriesToSender); err != nil { //nolint:contextcheck // the sinks outlive the call
			return nil, err
		}
		parts = append(parts, a.sinks.Part())
	}
	for _, role := range []struct {
		name string
		make func(context.Context) ([]lifecycle.Part, error)
	}{{roleController, a.newControllerParts}, {roleJanitor, a.newJanitorPartsUnlessDryRun}, {roleIntake, a.listenForFaultReports}} {
		if !cfg.hasRole(role.name) {
			continue
		}
		more, err := role.make(ctx)
		parts = append(parts, more...)
		if err != nil {
			return parts, err
		}
	}
	return parts, nil
}

// kubeOptionsWithLease returns the access of a manager or client to the host cluster.
func (a *app) kubeOptionsWithLease(lease string) kube.Options {
	namespaced, clusterScoped := janitor.Kinds()
	o := kube.Options{
		Scheme: a.scheme, Namespaced: namespaced, ClusterScoped: append(operator.Kinds(), clusterScoped...),
		Cache: cache.Options{ByObject: operator.CacheOptions(), ReaderFailOnMissingInformer: true}, Log: a.p.Log,
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
	a.store, err = intake.NewFaultStore(a.cfg.Intake.Store, intake.StoreDeps{Live: c, Write: c, Nodes: a.nodes})
	return a.store, err
}

// newControllerParts builds the parts that manage nodes.
func (a *app) newControllerParts(ctx context.Context) ([]lifecycle.Part, error) {
	m, err := kube.NewManager(a.host, a.kubeOptionsWithLease(nodefault.ControllerLease)) //nolint:contextcheck // the manager outlives the call
	if err != nil {
		return nil, err
	}
	a.nodes = m.GetClient()
	core, err := kubernetes.NewForConfig(m.GetConfig()) // only the leader writes
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	set, err := rules.Compile(a.cfg.configuredRulesOrDefaults())
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	seen, err := newIndexedNodeView(ctx, m.GetCache())
	if err != nil {
		return nil, err
	}
	a.nodeAt = intake.NewNodeNameByAddress(seen.findNodesByAddress)
	bound, err := a.newBudgetAddedToManager(m, core, seen)
	if err != nil {
		return nil, err
	}
	drainer := drain.New(a.cfg.Drain, core, seen.listDrainingNodeUIDs)
	if err := drainer.RegisterMetrics(a.p.Metrics); err != nil {
		return nil, err
	}
	repairs := a.cfg.toRemediationConfig()
	repairs.Log = a.p.Log
	if v := a.cfg.Remediation.Verification; v.Image != "" {
		verifier, err := remediation.NewJobVerifier(remediation.VerificationConfig{
			Namespace: a.cfg.Namespace, Image: v.Image, Command: v.Command, ServiceAccount: v.ServiceAccount,
		}, core)
		if err != nil {
			return nil, err
		}
		repairs.Verifier = verifier
	}
	o, err := operator.Add(m, operator.Config{TTL: a.cfg.Retention, Outbox: a.cfg.toOutboxConfig(a.p.StopTimeout())}, operator.Deps{
		Rules: set, Quarantine: quarantine.New(a.cfg.toQuarantineConfig(), bound), Drain: drainer, Remedy: remediation.New(repairs, m.GetClient()),
		Sinks: a.toOutboxSinks(), Log: a.p.Log, Registerer: a.p.Metrics,
	})
	if err != nil {
		return nil, err
	}
	found, err := intake.NewConditionSet(a.cfg.Conditions)
	if err != nil {
		return nil, err
	}
	kept, err := a.getOrCreateFaultStore()
	if err != nil {
		return nil, err
	}
	if err := intake.AddConditionController(m, found, a.intake.NewCountingStore(intake.KindConditions, kept), a.p.Log); err != nil {
		return nil, err
	}
	return []lifecycle.Part{kube.NewManagerPart("node fault controller", m, o.Ready)}, nil
}

// newBudgetAddedToManager builds the limit on the number of nodes out of service.
func (a *app) newBudgetAddedToManager(m *kube.Manager, core kubernetes.Interface, seen nodeView) (quarantine.Budget, error) {
	allowance, err := budget.New(a.cfg.toBudgetConfig(), seen.listNodes, a.p.Metrics)
	if err != nil || a.cfg.Budget.OnExhausted != budget.ManualReset {
		return allowance, err
	}
	keeper := budget.NewManualResetBudget(allowance, core.CoordinationV1(), a.cfg.Namespace, a.p.Log)
	if err := m.Add(keeper); err != nil {
		return nil, fmt.Errorf("start the budget of nodes out of service: %w", err)
	}
	return keeper, nil
}

func (a *app) toOutboxSinks() []operator.EventSink {
	var sinks []operator.EventSink
	for _, s := range a.sinks.List() {
		sinks = append(sinks, operator.EventSink{Name: s.Name, Client: s.Client, Wants: s.Wants, Replay: slices.Contains(a.cfg.Outbox.Replay, s.Name)})
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
	cfg.Log, cfg.Registerer = a.p.Log, a.p.Metrics
	var by janitor.Providers
	if by.Reboot, err = a.newProvider(m.GetConfig(), a.cfg.Janitor.RebootProvider); err != nil {
		return nil, err
	}
	if by.Terminate, err = a.newProvider(m.GetConfig(), a.cfg.Janitor.TerminateProvider); err != nil {
		return nil, err
	}
	if err := janitor.Add(m, cfg, by); err != nil {
		return nil, err
	}
	return []lifecycle.Part{kube.NewManagerPart("janitor", m, nil)}, nil
}

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
		there, err := kube.NewRESTConfig(kube.Config{Kubeconfig: file}, userAgent)
		if err != nil {
			return nil, err
		}
		if deps.Machines, err = dynamic.NewForConfig(there); err != nil {
			return nil, fmt.Errorf("create client: %w", err)
		}
	}
	return janitor.NewProvider(a.cfg.toProviderConfig(kind), deps)
}

// listenForFaultReports builds the parts that accept reports.
func (a *app) listenForFaultReports(ctx context.Context) ([]lifecycle.Part, error) {
	kept, err := a.getOrCreateFaultStore()
	if err != nil {
		return nil, err
	}
	cfg := a.cfg.Intake
	guard, err := intake.NewAuthenticator(cfg.Auth, intake.AuthDeps{ListenAddr: cfg.Server.Addr, OtherAddr: cfg.GRPC.Addr, Client: a.core, Log: a.p.Log})
	if err != nil {
		return nil, err
	}
	limits := intake.NewCallerLimits(cfg.HTTP.Rate, cfg.HTTP.Burst)
	handler, err := intake.NewHTTPHandler(cfg.HTTP, intake.HTTPDeps{Store: kept, Auth: guard, Metrics: a.intake, Callers: limits, NodeAt: a.nodeAt, Log: a.p.Log})
	if err != nil {
		return nil, err
	}
	server, err := httpserver.Listen(ctx, cfg.Server, handler, a.p.Log)
	if err != nil {
		return nil, fmt.Errorf("listen for reports (--listen-address or LISTEN_ADDRESS): %w", err)
	}
	a.p.Log.InfoContext(ctx, "listening for fault reports", "address", server.Addr())
	if a.listening != nil {
		a.listening(server.Addr())
	}
	parts := []lifecycle.Part{{Name: "reports", Run: server.Run, Ready: server.Ready, Close: server.Close}}
	if cfg.GRPC.Addr == "" && cfg.GRPC.Socket == "" {
		return parts, nil
	}
	g, err := intake.ListenGRPC(ctx, cfg.GRPC, intake.GRPCDeps{Store: kept, Auth: guard, Metrics: a.intake, Callers: limits, Log: a.p.Log})
	if err != nil {
		return parts, err
	}
	return append(parts, g.Part("reports by gRPC")), nil
}
