package check_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// BenchmarkPolicyInput measures the input of a check in a cluster with 1,000 nodes and 10,000 Pods.
func BenchmarkPolicyInput(b *testing.B) {
	s := scalingState(b)
	for i := range 1000 {
		s.Nodes = append(s.Nodes, newNode(fmt.Sprint("node-", i), "8", "32Gi", true, false))
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Input()
	}
}

// BenchmarkRequestsByNode measures the sum of requests, which is computed every few seconds.
func BenchmarkRequestsByNode(b *testing.B) {
	pods := make([]corev1.Pod, 10000)
	for i := range pods {
		pods[i].Spec.NodeName = fmt.Sprint("node-", i%1000)
		pods[i].Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
		}}}}
	}
	b.ReportAllocs()
	for b.Loop() {
		check.RequestsByNode(pods)
	}
}
