package drain

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/internal/selector"
)

// coveringPDBNames returns the names of the disruption budgets of a pod, as namespace/name, or a
// generic name if none is known. pdbsByNamespace caches the budgets of each namespace.
func (e *evictor) coveringPDBNames(
	ctx context.Context, pod *corev1.Pod, pdbsByNamespace map[string][]policyv1.PodDisruptionBudget,
) (joinedOrGeneric string) {
	budgets, listed := pdbsByNamespace[pod.Namespace]
	if !listed {
		budgets = e.listPDBsOrNone(ctx, pod.Namespace)
		pdbsByNamespace[pod.Namespace] = budgets
	}
	var names []string
	for i := range budgets {
		if pdbCovers(&budgets[i], pod) {
			names = append(names, pod.Namespace+"/"+budgets[i].Name)
		}
	}
	if len(names) == 0 {
		return byBudget
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// listPDBsOrNone lists the disruption budgets of a namespace. An error is not reported, because
// only the names are missing then.
func (e *evictor) listPDBsOrNone(ctx context.Context, namespace string) []policyv1.PodDisruptionBudget {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := e.client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, metav1.ListOptions{ResourceVersion: string(lagging)})
	if err != nil {
		return nil
	}
	return list.Items
}

// pdbCovers reports whether a disruption budget covers a pod.
func pdbCovers(pdb *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	pods, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	return err == nil && pods.Matches(labelsOf{selector.Map(pod.Labels)})
}

// labelsOf adapts labels to the label selectors of Kubernetes.
type labelsOf struct{ selector.Map }

// Has reports whether a label exists.
func (l labelsOf) Has(key string) bool { _, is := l.Map[key]; return is }

// Get returns the value of a label.
func (l labelsOf) Get(key string) string { return l.Map[key] }

// Lookup returns the value of a label, and whether it exists.
func (l labelsOf) Lookup(key string) (string, bool) { return l.Map.Get(key) }
