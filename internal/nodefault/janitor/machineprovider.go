package janitor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// MachineConfig configures Cluster API as provider.
type MachineConfig struct {
	// Version is the version of the group cluster.x-k8s.io. Empty means v1beta1.
	Version string
	// RebootAnnotation requests the remediation of a Machine. This is a reboot if its
	// MachineHealthCheck has an external remediation that reboots, and otherwise a
	// replacement. Empty means cluster.x-k8s.io/remediate-machine.
	RebootAnnotation string
	// Namespace is the namespace of the Machines for nodes without the annotation.
	Namespace string
}

// Annotations of Cluster API on nodes, and annotations on Machines.
const (
	machineGroup             = "cluster.x-k8s.io"
	machineOfNode            = "cluster.x-k8s.io/machine"
	namespaceOfNode          = "cluster.x-k8s.io/cluster-namespace"
	annotationRemediate      = "cluster.x-k8s.io/remediate-machine"
	annotationMachineRequest = "janitor.fleetloop.io/request"
	defaultMachineVersion    = "v1beta1"
	fieldManager             = "fleetloop-janitor"
)

// machineProvider is a provider that uses Cluster API.
type machineProvider struct {
	cfg    MachineConfig
	client dynamic.NamespaceableResourceInterface
}

func newMachineProvider(cfg MachineConfig, deps ProviderDeps) (*machineProvider, error) {
	client := deps.Machines
	if client == nil {
		client = deps.Dynamic
	}
	if client == nil {
		return nil, errors.New("no Kubernetes client")
	}
	cfg.RebootAnnotation = cmp.Or(cfg.RebootAnnotation, annotationRemediate)
	cfg.Version = cmp.Or(cfg.Version, defaultMachineVersion)
	resource := schema.GroupVersionResource{Group: machineGroup, Version: cfg.Version, Resource: "machines"}
	return &machineProvider{cfg, client.Resource(resource)}, nil
}

// Name returns "machine".
func (*machineProvider) Name() string { return string(ProviderMachine) }

// Start annotates or deletes the Machine. A missing Machine does not mean that the machine is
// gone, because it may be in another namespace or cluster.
func (m *machineProvider) Start(ctx context.Context, r Request) (reference string, err error) {
	found, err := m.findMachineByAnnotations(ctx, r.Node)
	if err != nil {
		return "", err
	}
	if r.Action == ActionTerminate {
		err = m.deleteMachine(ctx, found)
	} else {
		err = m.requestRemediation(ctx, found, r.Key)
	}
	return machineReference(found), err
}

// requestRemediation annotates the Machine. The key of the request is written in the same patch,
// because Cluster API removes its annotation when it is done.
func (m *machineProvider) requestRemediation(ctx context.Context, found *unstructured.Unstructured, key types.UID) error {
	if found.GetAnnotations()[annotationMachineRequest] == string(key) {
		return nil
	}
	return m.patchAnnotations(ctx, found, map[string]any{m.cfg.RebootAnnotation: "", annotationMachineRequest: key})
}

// patchAnnotations sets annotations of a Machine, and removes those with the value nil.
func (m *machineProvider) patchAnnotations(
	ctx context.Context, found *unstructured.Unstructured, annotations map[string]any,
) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": found.GetUID(), "resourceVersion": found.GetResourceVersion(), // does not overwrite another request
		"annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("annotate Machine %s: %w", machineReference(found), err)
	}
	_, err = m.client.Namespace(found.GetNamespace()).Patch(
		ctx, found.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("annotate Machine %s: %w", machineReference(found), err)
	}
	return nil
}

func (m *machineProvider) deleteMachine(ctx context.Context, found *unstructured.Unstructured) error {
	if found.GetDeletionTimestamp() != nil {
		return nil
	}
	sameMachine := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.GetUID()))}
	err := m.client.Namespace(found.GetNamespace()).Delete(ctx, found.GetName(), sameMachine)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Machine %s: %w", machineReference(found), err)
	}
	return nil
}

// CheckProgress returns whether the Machine still exists.
func (m *machineProvider) CheckProgress(ctx context.Context, r Request, reference string) (Progress, error) {
	namespace, name, uid, ok := parseMachineReference(reference)
	if !ok {
		return Progress{State: StateFailed, Message: fmt.Sprintf("%q is not a reference to a Machine", reference)}, nil
	}
	found, err := m.client.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	gone := apierrors.IsNotFound(err) || err == nil && found.GetUID() != uid
	if err != nil && !gone {
		return Progress{}, fmt.Errorf("read Machine %s/%s: %w", namespace, name, err)
	}
	switch {
	case gone && r.Action == ActionTerminate:
		return Progress{State: StateDone, Message: fmt.Sprintf("Machine %s/%s is deleted", namespace, name)}, nil
	case gone:
		return Progress{State: StateFailed, Message: fmt.Sprintf("Machine %s/%s was replaced instead of rebooted", namespace, name)}, nil
	}
	phase, _, _ := unstructured.NestedString(found.Object, "status", "phase") // a value of another type is ignored
	return Progress{State: StateRunning, Message: strings.TrimSpace(fmt.Sprintf("Machine %s/%s in progress %s", namespace, name, phase))}, nil
}

// findMachineByAnnotations returns the Machine of a node from the annotations of Cluster API on the
// node.
func (m *machineProvider) findMachineByAnnotations(
	ctx context.Context, node *corev1.Node,
) (*unstructured.Unstructured, error) {
	name := node.Annotations[machineOfNode]
	namespace := cmp.Or(node.Annotations[namespaceOfNode], m.cfg.Namespace)
	if name == "" || namespace == "" {
		return nil, permanentf("node %q has no annotations %s and %s: it is not managed by Cluster API",
			node.Name, machineOfNode, namespaceOfNode)
	}
	found, err := m.client.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Machine %s/%s: %w", namespace, name, err)
	}
	if of, _, _ := unstructured.NestedString(found.Object, "status", "nodeRef", "name"); of != "" && of != node.Name {
		return nil, permanentf("Machine %s/%s belongs to node %q, not to %q", namespace, name, of, node.Name)
	}
	return found, nil
}

// Withdraw removes the annotation that requests the reboot, unless it belongs to another request. A
// termination cannot be withdrawn.
func (m *machineProvider) Withdraw(ctx context.Context, r Request) error {
	if r.Action == ActionTerminate || r.Node == nil {
		return nil
	}
	found, err := m.findMachineByAnnotations(ctx, r.Node)
	var permanent *PermanentError
	switch {
	case apierrors.IsNotFound(err), errors.As(err, &permanent):
		return nil // no Machine is annotated
	case err != nil:
		return err
	case found.GetAnnotations()[annotationMachineRequest] != string(r.Key):
		return nil
	}
	return m.patchAnnotations(ctx, found, map[string]any{m.cfg.RebootAnnotation: nil})
}

func machineReference(machineObject *unstructured.Unstructured) string {
	return machineObject.GetNamespace() + "/" + machineObject.GetName() + "/" + string(machineObject.GetUID())
}

func parseMachineReference(text string) (namespace, name string, uid types.UID, ok bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 { //nolint:mnd // namespace, name, UID
		return "", "", "", false
	}
	return parts[0], parts[1], types.UID(parts[2]), true
}
