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
	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// The values of --kube.
const (
	kubeNone     = "none"
	kubeEmbedded = "embedded"
)

// sentinelNamespace is the namespace of the SentinelConfigs, which is the default of kubectl.
const sentinelNamespace = metav1.NamespaceDefault

// embeddedNATS is the broker URL in a SentinelConfig for the broker of this process, whose address
// is not needed.
const embeddedNATS = "nats://embedded"

// hostCluster is a Kubernetes control plane whose SentinelConfigs configure the sentinels of this
// process.
type hostCluster struct {
	bed  *kubebed.Bed
	objs client.Client

	kubeconfigs map[string]string // by user name
	reports     string            // address for health events
}

// startHostCluster starts the control plane, at which the demo persons authenticate by their tokens, and installs
// the CRDs.
func startHostCluster(ctx context.Context, p *process.Process, dataDir string, persons []console.DemoPerson) (*hostCluster, error) {
	kube.RedirectLibraryLogs(p.Log) // before the clients of the control plane begin to log
	tokens, err := writeTokenFile(dataDir, persons)
	if err != nil {
		return nil, fmt.Errorf("start embedded Kubernetes: %w", err)
	}
	bed, err := kubebed.Start(ctx, kubebed.Options{
		Dir:         filepath.Join(dataDir, "kubernetes"),
		Log:         p.Log,
		Scheduler:   true,
		Controllers: append(kubebed.JobControllers(), "deployment-controller", "replicaset-controller"),
		Args:        map[string][]string{kubebed.APIServer: {"--token-auth-file=" + tokens}},
	})
	if err != nil {
		return nil, fmt.Errorf("start embedded Kubernetes: %w", err)
	}
	h := &hostCluster{bed: bed}
	if err := h.installCRDsAndConnect(ctx); err != nil {
		return nil, fmt.Errorf("start embedded Kubernetes: %w", errors.Join(err, bed.Stop()))
	}
	return h, nil
}

func (h *hostCluster) installCRDsAndConnect(ctx context.Context) error {
	crds := [][]byte{
		deploy.SentinelConfigCRD,
		deploy.KubernetesExecutionCRD,
		deploy.NodeFaultCRD,
		deploy.RebootNodeCRD,
		deploy.TerminateNodeCRD,
	}
	for _, crd := range crds {
		if err := h.bed.InstallCRDText(ctx, crd); err != nil {
			return err
		}
	}
	scheme := runtime.NewScheme()
	err := errors.Join(
		v1alpha1.AddToScheme(scheme),
		appsv1.AddToScheme(scheme),
		corev1.AddToScheme(scheme),
		rbacv1.AddToScheme(scheme),
	)
	if err != nil {
		return err
	}
	h.objs, err = client.New(h.bed.Config(), client.Options{Scheme: scheme})
	return err
}

func (h *hostCluster) clusterPart() lifecycle.Part {
	return lifecycle.Part{Name: "Kubernetes", Run: h.bed.Run, Ready: h.bed.Ready, Close: h.bed.Stop}
}

// logAccess logs how to reach the cluster with kubectl.
func (h *hostCluster) logAccess(ctx context.Context, log *slog.Logger) {
	kubectl := filepath.Join(h.bed.Assets(), "kubectl")
	log.InfoContext(ctx, "host cluster ready", "url", h.bed.URL(), "kubeconfig", h.bed.AdminKubeconfig(), "kubectl", kubectl)
}

func (h *hostCluster) newLogExamplesWhenReadyPart(parts []lifecycle.Part, log *slog.Logger) lifecycle.Part {
	return lifecycle.Part{Name: "suggestions", Run: func(ctx context.Context) error {
		return h.logExamplesWhenReady(ctx, parts, log)
	}}
}

// readyCheckInterval is how often the readiness of all parts is checked.
const readyCheckInterval = 100 * time.Millisecond

// logExamplesWhenReady logs the example commands once, when all parts are ready. An earlier execution would be
// rejected.
func (h *hostCluster) logExamplesWhenReady(ctx context.Context, parts []lifecycle.Part, log *slog.Logger) error {
	ticker := time.NewTicker(readyCheckInterval)
	defer ticker.Stop()
	for slices.ContainsFunc(parts, isUnready) {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	h.logExamples(ctx, log)
	<-ctx.Done() // a part that returns earlier counts as failed
	return nil
}

// isUnready reports whether a part can tell that it is not ready.
func isUnready(part lifecycle.Part) bool { return part.Ready != nil && part.Ready() != nil }

func (h *hostCluster) logExamples(ctx context.Context, log *slog.Logger) {
	kubeconfigFlag := func(user string) string { return "--kubeconfig " + h.kubeconfigs[user] }
	for _, command := range h.exampleExecutionCommands(kubeconfigFlag) {
		log.InfoContext(ctx, "try an execution", "command", command)
	}
	for _, command := range faultExampleCommands(h.reports, " --kubeconfig "+h.bed.AdminKubeconfig()) {
		log.InfoContext(ctx, "try a node fault", "command", command)
	}
}

// errBroker means that the broker does not support --kube=embedded.
var errBroker = errors.New("--kube=embedded requires NATS: unset BROKER_TYPE, or set it to nats")

// ensureSentinelConfigs creates the SentinelConfigs of the two collections.
func (h *hostCluster) ensureSentinelConfigs(ctx context.Context, cfg SentinelConfig, apiURL string) error {
	for _, collection := range []string{v1.CollectionClusters, v1.CollectionNodePools} {
		if err := h.createOrRepointSentinelConfig(ctx, newSentinelConfig(collection, cfg, apiURL)); err != nil {
			return err
		}
	}
	return nil
}

// newSentinelOperatorParts builds the operator that runs all SentinelConfigs, including those that users add.
// live reports whether it makes progress.
func (h *hostCluster) newSentinelOperatorParts(
	p *process.Process,
	b *sentinelapp.Broker,
	note noteFunc,
) (parts []lifecycle.Part, live func() error, err error) {
	return sentinelapp.Operator{
		Host: h.bed.Config(), Namespace: sentinelNamespace, Broker: b,
		OnPublished: func(e sentinel.Published) { note(e.ResourceID, e.Reason, e.At) },
	}.BuildParts(p)
}

// newSentinelConfig returns the SentinelConfig that matches a built-in sentinel.
func newSentinelConfig(collection string, cfg SentinelConfig, apiURL string) *v1alpha1.SentinelConfig {
	duration := func(d time.Duration) v1alpha1.Duration { return v1alpha1.Duration(d.String()) }
	return &v1alpha1.SentinelConfig{
		ObjectMeta: metav1.ObjectMeta{Name: collection, Namespace: sentinelNamespace},
		Spec: v1alpha1.SentinelConfigSpec{
			ResourceType:    collection,
			PollInterval:    duration(cfg.PollInterval),
			BackoffNotReady: duration(cfg.MaxAgeNotReady),
			BackoffReady:    duration(cfg.MaxAgeReady),
			HyperfleetAPI:   v1alpha1.HyperfleetAPI{URL: apiURL},
			Broker:          v1alpha1.Broker{Type: v1alpha1.BrokerNATS, URL: embeddedNATS, Topic: nats.DefaultTopic},
			Decision:        &v1alpha1.Decision{Profile: sentinel.ProfileGenerationThenAge},
		},
	}
}

// createOrRepointSentinelConfig creates a SentinelConfig. An existing one keeps the changes of its user, except for
// the address of the API, which can change between runs.
func (h *hostCluster) createOrRepointSentinelConfig(ctx context.Context, want *v1alpha1.SentinelConfig) error {
	err := h.objs.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		err = h.setSentinelConfigAPIURL(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("create SentinelConfig %q: %w", want.Name, err)
	}
	return nil
}

// setSentinelConfigAPIURL sets the address of the API in the existing SentinelConfig with the name of want.
func (h *hostCluster) setSentinelConfigAPIURL(ctx context.Context, want *v1alpha1.SentinelConfig) error {
	existing := &v1alpha1.SentinelConfig{}
	if err := h.objs.Get(ctx, client.ObjectKeyFromObject(want), existing); err != nil {
		return err
	}
	repointed := existing.DeepCopy()
	repointed.Spec.HyperfleetAPI.URL = want.Spec.HyperfleetAPI.URL
	return h.objs.Patch(ctx, repointed, client.MergeFrom(existing))
}
