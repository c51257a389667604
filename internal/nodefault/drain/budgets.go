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

// coveringPDBNames returns the names of the disruption budgets of a pod, as namespace/name.
// pdbsByNamespace holds the budgets of each namespace.
func (e *evictor) coveringPDBNames(ctx context.Context, pod *corev1.Pod, pdbsByNamespace map[string][]policyv1.PodDisruptionBudget) (joinedOrGeneric string) {
	budgets, is := pdbsByNamespace[pod.Namespace]
	if !is {
		ctx, cancel := context.WithTimeout(ctx, callBound)
		defer cancel()
		list, err := e.client.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{ResourceVersion: string(lagging)})
		if err == nil {
			budgets = list.Items
		}
		pdbsByNamespace[pod.Namespace] = budgets // after an error, only the name is missing
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

// pdbCovers reports whether a disruption budget covers a pod.
func pdbCovers(pdb *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	chosen, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	return err == nil && chosen.Matches(labelsOf{selector.Map(pod.Labels)})
}

// labelsOf adapts labels to the label selectors of Kubernetes.
type labelsOf struct{ selector.Map }

// Has reports whether a label exists.
func (l labelsOf) Has(key string) bool { _, is := l.Map[key]; return is }

// Get returns the value of a label.
func (l labelsOf) Get(key string) string { return l.Map[key] }

// Lookup returns the value of a label, and whether it exists.
func (l labelsOf) Lookup(key string) (string, bool) { return l.Map.Get(key) }
