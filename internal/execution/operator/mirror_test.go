package operator

import (
	"context"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A mirror is the executions of a fixture as an operator sees them: it may be behind,
// but never behind what it has seen, or heard that it has written.
type mirror struct {
	storedExecutions

	lag   int // versions that it is behind
	least map[types.NamespacedName]int
}

func newMirror(w *fixture) *mirror {
	c := &mirror{storedExecutions: storedExecutions{w}, least: map[types.NamespacedName]int{}}
	for _, ke := range w.store {
		c.note(ke)
	}
	return c
}

// note has nothing older be seen.
func (c *mirror) note(ke *v1alpha1.KubernetesExecution) {
	if v, err := strconv.Atoi(ke.ResourceVersion); err == nil {
		c.least[nameOf(ke)] = max(c.least[nameOf(ke)], v)
	}
}

// heard notes what was written, if the answer was heard.
func (c *mirror) heard(ke *v1alpha1.KubernetesExecution, err error) error {
	if err == nil {
		c.note(ke)
	}
	return err
}

func (c *mirror) Get(ctx context.Context, name types.NamespacedName) (*v1alpha1.KubernetesExecution, error) {
	now, err := c.storedExecutions.Get(ctx, name)
	if now == nil || err != nil {
		return nil, err
	}
	behind := c.lag
	for _, old := range slices.Backward(c.w.past[name]) {
		if v, bad := strconv.Atoi(old.ResourceVersion); bad != nil || v < c.least[name] || behind == 0 {
			break
		}
		now, behind = old.DeepCopy(), behind-1
	}
	c.note(now)
	return now, nil
}

func (c *mirror) ApplyStatus(ctx context.Context, ke *v1alpha1.KubernetesExecution, owner string) error {
	return c.heard(ke, c.storedExecutions.ApplyStatus(ctx, ke, owner))
}

func (c *mirror) SetFinalizer(ctx context.Context, ke *v1alpha1.KubernetesExecution, present bool) error {
	return c.heard(ke, c.storedExecutions.SetFinalizer(ctx, ke, present))
}
