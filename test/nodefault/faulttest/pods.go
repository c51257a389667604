package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// CreateRunningPod creates a running and ready pod of a ReplicaSet on a node. It ends at once when it
// is deleted.
func (c *Cluster) CreateRunningPod(namespace, name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	c.Helper()
	var none int64
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "uid-of-web", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &none,
			Containers: []corev1.Container{{Name: "main", Image: "localhost/web:1"}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	if err := c.Client.Create(c.Context(), p); err != nil {
		c.Fatal(err)
	}
	p.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if err := c.Client.Status().Update(c.Context(), p); err != nil {
		c.Fatal(err)
	}
	return p
}

// Bare removes the controller of a pod.
func Bare(p *corev1.Pod) { p.OwnerReferences = nil }

// Slow gives a pod a grace period. It stays terminating until the test deletes it.
func Slow(p *corev1.Pod) {
	seconds := int64(30)
	p.Spec.TerminationGracePeriodSeconds = &seconds
}

// DeletePod removes a pod, like the kubelet after its containers have ended.
func (c *Cluster) DeletePod(p *corev1.Pod) {
	c.Helper()
	if err := c.Client.Delete(c.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		c.Fatal(err)
	}
}

// kubeletPeriod is the polling interval of the simulated kubelet.
const kubeletPeriod = 500 * time.Millisecond

// startPodCleanupLoop removes the pods whose grace period is over, until the test ends.
//
// The API server deletes a pod without a grace period in two writes. It omits the second
// one if the client disconnects between them. In a real cluster the kubelet then removes
// the pod; the test cluster has none.
func (c *Cluster) startPodCleanupLoop() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	var kubelet sync.WaitGroup
	kubelet.Go(func() {
		for ticker := time.NewTicker(kubeletPeriod); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
				if err := c.deletePodsPastGracePeriod(ctx); err != nil && ctx.Err() == nil {
					c.Errorf("remove the pods that have ended: %v", err)
				}
			}
		}
	})
	c.Cleanup(func() { cancel(); kubelet.Wait() })
}

// deletePodsPastGracePeriod removes each pod without a grace period that has been terminating for a
// second.
func (c *Cluster) deletePodsPastGracePeriod(ctx context.Context) error {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods); err != nil {
		return err
	}
	var errs []error
	for i := range pods.Items {
		p := &pods.Items[i]
		grace := p.DeletionGracePeriodSeconds
		if p.DeletionTimestamp == nil || grace == nil || *grace > 0 || time.Since(p.DeletionTimestamp.Time) < time.Second {
			continue
		}
		err := c.Client.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

// CreatePDBAndAwaitPodCount creates a disruption budget that keeps a number of pods, and waits until it
// counts a number of pods.
func (c *Cluster) CreatePDBAndAwaitPodCount(namespace, name string, minAvailable, pods int32) *policyv1.PodDisruptionBudget {
	c.Helper()
	least := intstr.FromInt32(minAvailable)
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	if err := c.Client.Create(c.Context(), b); err != nil {
		c.Fatal(err)
	}
	kubebedtest.Eventually(c, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if b.Status.ObservedGeneration < b.Generation || b.Status.CurrentHealthy != pods {
			return fmt.Errorf("budget %q has counted %d pods, want %d", name, b.Status.CurrentHealthy, pods)
		}
		return nil
	})
	return b
}
