// Package janitor executes RebootNodes and TerminateNodes, regardless of who created
// them.
//
// Each object is one action. The janitor tries it until the deadline in its status; then
// it has succeeded or failed permanently. Only the oldest unfinished object of a node
// runs, and the others wait. The intent to call a provider is recorded before the call,
// and the UID of the object identifies the request, so a janitor that crashes repeats
// nothing. A reboot is verified only by a new boot ID of a node that is Ready, a
// termination only by a machine and a Node that are gone.
//
// A Provider reboots and terminates the machines: a Job on the node, a webhook, the Machine
// of Cluster API, a KubernetesExecution, or a person.
package janitor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// Config configures which actions are executed, and how long they may take.
type Config struct {
	RebootDeadline    time.Duration // from the start of the action; zero means 30 min
	TerminateDeadline time.Duration // zero means 30 min
	// TTL is how long finished objects are kept. Zero means 24 h.
	TTL time.Duration
	// Poll is the interval of status checks with providers. Zero means 10 s.
	Poll time.Duration
	// BootIDWait is how long a node may report no boot ID, from the start of a reboot.
	// Zero means 5 min.
	BootIDWait time.Duration
	// CallTimeout limits each call of a provider. Zero means 30 s.
	CallTimeout time.Duration
	// ControlPlane allows actions on control plane nodes.
	ControlPlane bool
	// Excluded lists labels, as key or key=value, of nodes without actions. Nodes that
	// opted out of node faults are always excluded.
	Excluded []string

	Log        *slog.Logger          // nil means no logs
	Registerer prometheus.Registerer // nil means no metrics
}

// Providers execute the actions. A nil provider rejects them.
type Providers struct {
	Reboot, Terminate Provider
}

func (c Config) withDefaults() Config {
	c.RebootDeadline = cmp.Or(c.RebootDeadline, 30*time.Minute)
	c.TerminateDeadline = cmp.Or(c.TerminateDeadline, 30*time.Minute)
	c.TTL = cmp.Or(c.TTL, 24*time.Hour)
	c.Poll = cmp.Or(c.Poll, 10*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 30*time.Second)
	c.BootIDWait = cmp.Or(c.BootIDWait, 5*time.Minute)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// AddToScheme registers the types that the manager of Add needs.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(v1alpha1.AddToScheme(s), corev1.AddToScheme(s))
}

// Kinds returns the kinds that a manager needs, for kube.Options. Pods are read only from
// the API server.
func Kinds() (namespaced, clusterScoped []schema.GroupVersionKind) {
	namespaced = []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"),
	}
	clusterScoped = []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.KindReboot),
		v1alpha1.GroupVersion.WithKind(v1alpha1.KindTerminate),
		corev1.SchemeGroupVersion.WithKind("Node"),
	}
	return namespaced, clusterScoped
}

// Add adds a controller for each of the two kinds to a manager. The manager must use
// leader election, because two active janitors would not coordinate their actions.
func Add(m manager.Manager, cfg Config, p Providers) error {
	cfg = cfg.withDefaults()
	metrics, err := newMetrics(cfg.Registerer)
	if err != nil {
		return fmt.Errorf("add janitor: %w", err)
	}
	if p.Reboot == nil {
		p.Reboot = rejectingProvider{}
	}
	if p.Terminate == nil {
		p.Terminate = rejectingProvider{}
	}
	turns := &nodeActionQueue{live: m.GetAPIReader()}
	for _, kind := range []actionKind{newRebootActionKind(cfg, p), newTerminateActionKind(cfg, p)} {
		r := &reconciler{
			kind:    kind,
			cfg:     cfg,
			client:  m.GetClient(),
			live:    m.GetAPIReader(),
			turns:   turns,
			written: &kube.WrittenVersions{},
			metrics: metrics,
			log:     cfg.Log,
			now:     time.Now,
		}
		if err := r.setupController(m); err != nil {
			return fmt.Errorf("add janitor of %s: %w", kind.name, err)
		}
	}
	return nil
}

// An actionKind holds the differences between reboots and terminations.
type actionKind struct {
	name, resource string
	final          string // condition with the final result
	action         Action
	deadline       time.Duration
	provider       Provider
	newObject      func() client.Object
}

func newRebootActionKind(cfg Config, p Providers) actionKind {
	return actionKind{
		name:      v1alpha1.KindReboot,
		resource:  v1alpha1.ResourceReboot,
		final:     v1alpha1.ConditionNodeReady,
		action:    ActionReboot,
		deadline:  cfg.RebootDeadline,
		provider:  p.Reboot,
		newObject: func() client.Object { return &v1alpha1.RebootNode{} },
	}
}

func newTerminateActionKind(cfg Config, p Providers) actionKind {
	return actionKind{
		name:      v1alpha1.KindTerminate,
		resource:  v1alpha1.ResourceTerminate,
		final:     v1alpha1.ConditionNodeTerminated,
		action:    ActionTerminate,
		deadline:  cfg.TerminateDeadline,
		provider:  p.Terminate,
		newObject: func() client.Object { return &v1alpha1.TerminateNode{} },
	}
}

// specAndStatus returns the spec and the status of an object, which have the same type in
// both kinds. For any other type they are empty.
func specAndStatus(o client.Object) (*v1alpha1.NodeActionSpec, *v1alpha1.NodeActionStatus) {
	switch o := o.(type) {
	case *v1alpha1.RebootNode:
		return &o.Spec, &o.Status
	case *v1alpha1.TerminateNode:
		return &o.Spec, &o.Status
	}
	return &v1alpha1.NodeActionSpec{}, &v1alpha1.NodeActionStatus{}
}
