package operator

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/gate"
)

// emergencyStop applies the emergency stop ConfigMap to the gate and to running executions.
type emergencyStop struct {
	gate        *gate.Gate
	halted      atomic.Bool                 // true while it also cancels running executions
	wakeRunning func(context.Context) error // wakes the running executions
	log         *slog.Logger
}

// newReconciler returns a reconciler for the ConfigMap. The cache behind c contains no other
// ConfigMap.
func (e *emergencyStop) newReconciler(c client.Reader) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, e.syncFromConfigMap(ctx, c, req.NamespacedName)
	})
}

// syncFromConfigMap reads the ConfigMap and stops or resumes the gate accordingly.
func (e *emergencyStop) syncFromConfigMap(ctx context.Context, c client.Reader, name types.NamespacedName) error {
	var stop corev1.ConfigMap
	err := c.Get(ctx, name, &stop)
	if apierrors.IsNotFound(err) {
		e.halted.Store(false)
		e.gate.Resume()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the emergency stop: %w", err)
	}
	reason := stop.Data[v1alpha1.StopReason]
	if reason == "" {
		reason = "no reason given"
	}
	e.log.WarnContext(ctx, "emergency stop active, no execution starts", "reason", reason)
	e.gate.Stop(reason)
	if halt := stop.Data[v1alpha1.StopRunning] == "true"; halt != e.halted.Swap(halt) && halt {
		return e.wakeRunning(ctx)
	}
	return nil
}
