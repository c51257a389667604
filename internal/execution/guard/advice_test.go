package guard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// heard are the warnings of one request.
type heard []string

func (h *heard) HandleWarningHeader(_ int, _, text string) { *h = append(*h, text) }

// TestWarned holds that who creates an execution where nobody looks is told
// so, and that nobody else is told anything.
func TestWarned(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.install(guard.WrongNamespaceWarningObjects(w.options()))
	create := func(ctx context.Context, namespace string) heard {
		var warnings heard
		cfg := kubebedtest.Bed(t).Config()
		cfg.WarningHandler = &warnings
		client, err := dynamic.NewForConfig(cfg)
		must(t, err)
		_, err = client.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).Namespace(namespace).
			Create(ctx, &unstructured.Unstructured{Object: asked(nil)}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		must(t, err)
		return warnings
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		for _, said := range create(ctx, w.other) { // those of other tests warn, too
			if strings.Contains(said, "in namespace "+w.ns+" ignores") && strings.Contains(said, w.other) {
				return nil
			}
		}
		return fmt.Errorf("nobody is warned of namespace %s", w.other)
	})
	for _, said := range create(t.Context(), w.ns) {
		if strings.Contains(said, "in namespace "+w.ns+" ignores") {
			t.Errorf("where the controller looks they are told %q", said)
		}
	}
}
