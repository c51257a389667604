package allinone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy/crds"
	"github.com/fleetloop/fleetloop/internal/app/bus"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// What --kube can be.
const (
	kubeNone     = "none"
	kubeEmbedded = "embedded"
)

// sentinelNamespace is where the SentinelConfigs are: where kubectl looks
// unless it is told otherwise.
const sentinelNamespace = metav1.NamespaceDefault

// embeddedNATS stands in a SentinelConfig for the broker of this process, whose
// address nobody needs.
const embeddedNATS = "nats://embedded"

// A hostCluster is a Kubernetes control plane in which SentinelConfigs say
// what the sentinels of this process do.
type hostCluster struct {
	bed  *kubebed.Bed
	objs client.Client

	kubeconfigs map[string]string // of people, by their names
	reports     string            // where health events are taken
}

// startHostCluster starts the control plane, and makes the kind known.
func startHostCluster(ctx context.Context, p *process.Process, dir string) (*hostCluster, error) {
	bed, err := kubebed.Start(ctx, kubebed.Options{
		Dir: filepath.Join(dir, "kubernetes"), Log: p.Log, Scheduler: true,
		Controllers: append(kubebed.JobControllers(), "deployment-controller", "replicaset-controller"),
	})
	if err != nil {
		return nil, fmt.Errorf("start embedded Kubernetes: %w", err)
	}
	h := &hostCluster{bed: bed}
	if err := h.prepareCluster(ctx); err != nil {
		return nil, fmt.Errorf("start embedded Kubernetes: %w", errors.Join(err, bed.Stop()))
	}
	return h, nil
}

func (h *hostCluster) prepareCluster(ctx context.Context) error {
	for _, crd := range [][]byte{crds.SentinelConfigs, crds.KubernetesExecutions, crds.NodeFaults, crds.RebootNodes, crds.TerminateNodes} {
		if err := h.bed.InstallCRDText(ctx, crd); err != nil {
			return err
		}
	}
	scheme := runtime.NewScheme()
	err := errors.Join(v1alpha1.AddToScheme(scheme), appsv1.AddToScheme(scheme), corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme))
	if err != nil {
		return err
	}
	h.objs, err = client.New(h.bed.Config(), client.Options{Scheme: scheme})
	return err
}

func (h *hostCluster) clusterPart() lifecycle.Part {
	return lifecycle.Part{Name: "Kubernetes", Run: h.bed.Run, Ready: h.bed.Ready, Close: h.bed.Stop}
}

// logAccess says how kubectl reaches it.
func (h *hostCluster) logAccess(ctx context.Context, log *slog.Logger) {
	log.InfoContext(ctx, "host cluster ready", "url", h.bed.URL(), "kubeconfig", h.bed.AdminKubeconfig(), "kubectl", filepath.Join(h.bed.Assets(), "kubectl"))
}

// suggestionPart is the part that says what can be tried, once all parts are ready: an
// execution that is asked for before that is refused.
func (h *hostCluster) suggestionPart(parts []lifecycle.Part, log *slog.Logger) lifecycle.Part {
	return lifecycle.Part{Name: "suggestions", Run: func(ctx context.Context) error {
		tick := time.NewTicker(readyEvery)
		defer tick.Stop()
		for told := false; ; {
			if !told && !slices.ContainsFunc(parts, func(p lifecycle.Part) bool { return p.Ready != nil && p.Ready() != nil }) {
				h.tellCommands(ctx, log)
				told = true
				tick.Stop()
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}}
}

// readyEvery is how often it is looked whether all parts are ready.
const readyEvery = 100 * time.Millisecond

// tellCommands says what can be tried.
func (h *hostCluster) tellCommands(ctx context.Context, log *slog.Logger) {
	kubeconfig := h.bed.AdminKubeconfig()
	as := func(name string) string { return "--kubeconfig " + h.kubeconfigs[name] }
	for _, command := range h.exampleCommands(as) {
		log.InfoContext(ctx, "try an execution", "command", command)
	}
	for _, command := range tryFaults(h.reports, " --kubeconfig "+kubeconfig) {
		log.InfoContext(ctx, "try a node fault", "command", command)
	}
}

// errBroker says which brokers go with --kube=embedded.
var errBroker = errors.New("--kube=embedded requires NATS: unset BROKER_TYPE, or set it to nats")

// configure makes the SentinelConfigs of the two collections.
func (h *hostCluster) configure(ctx context.Context, cfg SentinelConfig, api string) error {
	for _, collection := range []string{v1.CollectionClusters, v1.CollectionNodePools} {
		if err := h.ensureConfig(ctx, sentinelConfig(collection, cfg, api)); err != nil {
			return err
		}
	}
	return nil
}

// sentinels makes the operator that runs the SentinelConfigs, ours and whatever
// others there come to be. live says whether it makes progress.
func (h *hostCluster) sentinels(p *process.Process, b *bus.Bus, note noteFunc) (parts []lifecycle.Part, live func() error, err error) {
	return sentinelapp.Operator{
		Host: h.bed.Config(), Namespace: sentinelNamespace, Broker: b,
		OnPublished: func(e sentinel.Published) { note(e.ResourceID, e.Reason, e.At) },
	}.Parts(p)
}

// sentinelConfig says what a built-in sentinel would do.
func sentinelConfig(collection string, cfg SentinelConfig, api string) *v1alpha1.SentinelConfig {
	duration := func(d time.Duration) v1alpha1.Duration { return v1alpha1.Duration(d.String()) }
	return &v1alpha1.SentinelConfig{
		ObjectMeta: metav1.ObjectMeta{Name: collection, Namespace: sentinelNamespace},
		Spec: v1alpha1.SentinelConfigSpec{
			ResourceType:    collection,
			PollInterval:    duration(cfg.PollInterval),
			BackoffNotReady: duration(cfg.MaxAgeNotReady),
			BackoffReady:    duration(cfg.MaxAgeReady),
			HyperfleetAPI:   v1alpha1.HyperfleetAPI{URL: api},
			Broker:          v1alpha1.Broker{Type: v1alpha1.BrokerNATS, URL: embeddedNATS, Topic: nats.DefaultTopic},
			Decision:        &v1alpha1.Decision{Profile: sentinel.ProfileGenerationThenAge},
		},
	}
}

// ensureConfig makes a SentinelConfig. One that is there keeps what its user has
// made of it, but for the address of the API, which may be another now.
func (h *hostCluster) ensureConfig(ctx context.Context, want *v1alpha1.SentinelConfig) error {
	err := h.objs.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		there := &v1alpha1.SentinelConfig{}
		if err = h.objs.Get(ctx, client.ObjectKeyFromObject(want), there); err == nil {
			changed := there.DeepCopy()
			changed.Spec.HyperfleetAPI.URL = want.Spec.HyperfleetAPI.URL
			err = h.objs.Patch(ctx, changed, client.MergeFrom(there))
		}
	}
	if err != nil {
		return fmt.Errorf("create SentinelConfig %q: %w", want.Name, err)
	}
	return nil
}
