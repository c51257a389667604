package faulttest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod makes a pod of a ReplicaSet on a node, which runs, is ready, and ends at
// once when it is told to.
func (c *Cluster) Pod(namespace, name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
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
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if err := c.Client.Status().Update(c.Context(), p); err != nil {
		c.Fatal(err)
	}
	return p
}

// Bare has a pod be one that nothing would make again.
func Bare(p *corev1.Pod) { p.OwnerReferences = nil }
