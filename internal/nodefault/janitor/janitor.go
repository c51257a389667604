// Package janitor carries out RebootNodes and TerminateNodes, whoever made them.
//
// Each object is one action and is tried until its deadline, which stands in its
// status; then it is over, well or not, for ever. Of the objects of one node the
// oldest goes and the others wait. Before a provider is asked the object says
// so, and what it is asked under is the object's UID, so a janitor that dies
// repeats nothing. A reboot is proven by another boot id on a node that is
// Ready, and by nothing else; a termination by a machine and a Node that are
// gone.
package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault/provider"
)

// Config says what is carried out, and how long it may take.
type Config struct {
	RebootDeadline    time.Duration // from when it is taken up; zero is 30 min
	TerminateDeadline time.Duration // zero is 30 min
	// TTL is how long objects are kept after their end. Zero is 24 h.
	TTL time.Duration
	// Poll is how often providers are asked how far they are. Zero is 10 s.
	Poll time.Duration
	// BootIDWait is how long a node that is to be rebooted may report no boot id,
	// from when that was taken up. Zero is 5 min.
	BootIDWait time.Duration
	// CallTimeout bounds each call of a provider. Zero is 30 s.
	CallTimeout time.Duration
	// ControlPlane has nodes of the control plane be rebooted and terminated too.
	ControlPlane bool
	// Excluded are labels, as key or key=value, of nodes that are left alone.
	// Those that opted out of node faults always are.
	Excluded []string

	Log        *slog.Logger          // nil is silence
	Registerer prometheus.Registerer // nil is none
}

// Providers are who carries it out. One that is nil fails what it is asked.
type Providers struct {
	Reboot, Terminate provider.Provider
}

func (c Config) withDefaults() Config {
	const deadline, ttl, poll, call, boot = 30 * time.Minute, 24 * time.Hour, 10 * time.Second, 30 * time.Second, 5 * time.Minute
	c.RebootDeadline = cmp.Or(c.RebootDeadline, deadline)
	c.TerminateDeadline = cmp.Or(c.TerminateDeadline, deadline)
	c.TTL = cmp.Or(c.TTL, ttl)
	c.Poll = cmp.Or(c.Poll, poll)
	c.CallTimeout = cmp.Or(c.CallTimeout, call)
	c.BootIDWait = cmp.Or(c.BootIDWait, boot)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// AddToScheme makes known what Add's manager has to know.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(v1alpha1.AddToScheme(s), corev1.AddToScheme(s))
}

// Kinds are those that a manager has to know: kube.Options has them likewise.
// Pods are only read from the API server itself.
func Kinds() (namespaced, clusterScoped []schema.GroupVersionKind) {
	return []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Pod")}, []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.KindReboot), v1alpha1.GroupVersion.WithKind(v1alpha1.KindTerminate),
		corev1.SchemeGroupVersion.WithKind("Node"),
	}
}

// Add has a manager carry out both kinds. The manager must have a leader: two
// that work would know nothing of each other's turn.
func Add(m manager.Manager, cfg Config, p Providers) error {
	cfg = cfg.withDefaults()
	metrics, err := newMetrics(cfg.Registerer)
	if err != nil {
		return fmt.Errorf("add janitor: %w", err)
	}
	fallback, err := provider.New(provider.Config{Kind: provider.KindNone}, provider.Deps{})
	if err != nil {
		return fmt.Errorf("add janitor: %w", err)
	}
	if p.Reboot == nil {
		p.Reboot = fallback
	}
	if p.Terminate == nil {
		p.Terminate = fallback
	}
	turns := &turns{live: m.GetAPIReader()}
	for _, k := range []kind{newRebootKind(cfg, p), terminations(cfg, p)} {
		r := &reconciler{
			kind: k, cfg: cfg, client: m.GetClient(), live: m.GetAPIReader(), turns: turns,
			written: &kube.Written{}, metrics: metrics, log: cfg.Log, now: time.Now,
		}
		if err := r.setupController(m); err != nil {
			return fmt.Errorf("add janitor of %s: %w", k.name, err)
		}
	}
	return nil
}

// A kind is what differs between reboots and terminations.
type kind struct {
	name, resource string
	final          string // the condition that says how it ended
	action         provider.Action
	deadline       time.Duration
	provider       provider.Provider
	empty          func() client.Object
}

func newRebootKind(cfg Config, p Providers) kind {
	return kind{
		name: v1alpha1.KindReboot, resource: v1alpha1.ResourceReboot, final: v1alpha1.ConditionNodeReady,
		action: provider.ActionReboot, deadline: cfg.RebootDeadline, provider: p.Reboot,
		empty: func() client.Object { return &v1alpha1.RebootNode{} },
	}
}

func terminations(cfg Config, p Providers) kind {
	return kind{
		name: v1alpha1.KindTerminate, resource: v1alpha1.ResourceTerminate, final: v1alpha1.ConditionNodeTerminated,
		action: provider.ActionTerminate, deadline: cfg.TerminateDeadline, provider: p.Terminate,
		empty: func() client.Object { return &v1alpha1.TerminateNode{} },
	}
}

// callProvider calls the provider.
func (k kind) callProvider(ctx context.Context, r provider.Request) (string, error) {
	if k.action == provider.ActionTerminate {
		return k.provider.Terminate(ctx, r)
	}
	return k.provider.Reboot(ctx, r)
}

// specAndStatus are the spec and the status of an object, which are the same type in
// both kinds; nil are those of another.
func specAndStatus(o client.Object) (*v1alpha1.NodeActionSpec, *v1alpha1.NodeActionStatus) {
	switch o := o.(type) {
	case *v1alpha1.RebootNode:
		return &o.Spec, &o.Status
	case *v1alpha1.TerminateNode:
		return &o.Spec, &o.Status
	}
	return &v1alpha1.NodeActionSpec{}, &v1alpha1.NodeActionStatus{}
}

// turns let one object of a node go at a time.
type turns struct {
	mu   sync.Mutex
	live client.Reader
}
