package provider

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

// MachineConfig is how Cluster API is asked.
type MachineConfig struct {
	// Version of the group cluster.x-k8s.io. Empty is v1beta1.
	Version string
	// RebootAnnotation has a Machine remediated, which is a reboot where its
	// MachineHealthCheck has an external remediation that reboots, and else a
	// replacement. Empty is cluster.x-k8s.io/remediate-machine.
	RebootAnnotation string
	// Namespace is that of the Machines, where nodes do not say.
	Namespace string
}

// What Cluster API writes on nodes, and what is written on Machines.
const (
	machineGroup             = "cluster.x-k8s.io"
	machineOfNode            = "cluster.x-k8s.io/machine"
	namespaceOfNode          = "cluster.x-k8s.io/cluster-namespace"
	annotationRemediate      = "cluster.x-k8s.io/remediate-machine"
	annotationMachineRequest = "janitor.fleetloop.io/request"
	defaultMachineVersion    = "v1beta1"
	fieldManager             = "fleetloop-janitor"
)

// machine is a provider that asks Cluster API.
type machine struct {
	cfg    MachineConfig
	client dynamic.NamespaceableResourceInterface
}

func newMachine(cfg MachineConfig, deps Deps) (*machine, error) {
	client := deps.Machines
	if client == nil {
		client = deps.Dynamic
	}
	if client == nil {
		return nil, errors.New("no Kubernetes client")
	}
	cfg.RebootAnnotation = cmp.Or(cfg.RebootAnnotation, annotationRemediate)
	cfg.Version = cmp.Or(cfg.Version, defaultMachineVersion)
	return &machine{cfg, client.Resource(schema.GroupVersionResource{Group: machineGroup, Version: cfg.Version, Resource: "machines"})}, nil
}

// Name is "machine".
func (*machine) Name() string { return string(KindMachine) }

// Reboot annotates the Machine. What was asked stands on it in the same
// request: Cluster API takes its own annotation away when it is done.
func (m *machine) Reboot(ctx context.Context, r Request) (string, error) {
	found, err := m.findMachine(ctx, r.Node)
	if err != nil {
		return "", err
	}
	reference := referenceOf(found)
	if found.GetAnnotations()[annotationMachineRequest] == string(r.Key) {
		return reference, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": found.GetUID(), "resourceVersion": found.GetResourceVersion(), // nobody else's request is overwritten
		"annotations": map[string]string{m.cfg.RebootAnnotation: "", annotationMachineRequest: string(r.Key)},
	}})
	if err != nil {
		return "", fmt.Errorf("annotate Machine %s: %w", reference, err)
	}
	_, err = m.client.Namespace(found.GetNamespace()).Patch(ctx, found.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return "", fmt.Errorf("annotate Machine %s: %w", reference, err)
	}
	return reference, nil
}

// Terminate deletes the Machine. A node whose Machine is not found is not taken
// for one that is gone: another namespace or cluster may have it.
func (m *machine) Terminate(ctx context.Context, r Request) (string, error) {
	found, err := m.findMachine(ctx, r.Node)
	if err != nil {
		return "", err
	}
	reference := referenceOf(found)
	if found.GetDeletionTimestamp() != nil {
		return reference, nil
	}
	uid := found.GetUID()
	err = m.client.Namespace(found.GetNamespace()).Delete(ctx, found.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("delete Machine %s: %w", reference, err)
	}
	return reference, nil
}

// Look says whether the Machine is there.
func (m *machine) Look(ctx context.Context, r Request, reference string) (Progress, error) {
	namespace, name, uid, ok := parseReference(reference)
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
	phase, _, _ := unstructured.NestedString(found.Object, "status", "phase") // one that is no text is left out
	return Progress{State: StateRunning, Message: strings.TrimSpace(fmt.Sprintf("Machine %s/%s in progress %s", namespace, name, phase))}, nil
}

// findMachine finds the Machine of a node by what Cluster API wrote on the node.
func (m *machine) findMachine(ctx context.Context, node *corev1.Node) (*unstructured.Unstructured, error) {
	name := node.Annotations[machineOfNode]
	namespace := cmp.Or(node.Annotations[namespaceOfNode], m.cfg.Namespace)
	if name == "" || namespace == "" {
		return nil, permanentf("node %q has no annotations %s and %s: it is not managed by Cluster API", node.Name, machineOfNode, namespaceOfNode)
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

func referenceOf(m *unstructured.Unstructured) string {
	return m.GetNamespace() + "/" + m.GetName() + "/" + string(m.GetUID())
}

func parseReference(text string) (namespace, name string, uid types.UID, ok bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 { //nolint:mnd // namespace, name, UID
		return "", "", "", false
	}
	return parts[0], parts[1], types.UID(parts[2]), true
}
