package action

import (
	"testing"
)

// deployment is one with two containers.
func deployment(name string, replicas int64) map[string]any {
	return workload("Deployment", name, replicas)
}

func workload(kind, name string, replicas int64) map[string]any {
	labels := map[string]any{"app": name}
	spec := map[string]any{
		"replicas": replicas,
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{"containers": []any{
				map[string]any{
					"name": "app", "image": "registry.example.com/app:1",
					"resources": map[string]any{"requests": map[string]any{"cpu": "100m"}, "limits": map[string]any{"memory": "1Gi"}},
				},
				map[string]any{"name": "proxy", "image": "registry.example.com/proxy:1"},
			}},
		},
	}
	switch kind {
	case "StatefulSet":
		spec["serviceName"] = name
	case "DaemonSet":
		delete(spec, "replicas")
	}
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
}

func TestScale(t *testing.T) {
	for name, tr := range map[string]trial{
		"Deployment": {
			reason: "up", object: deployment("web", 3),
			action: "scale_deployment", parameters: map[string]any{"deployment": "web", "replicas": 5},
			did: "scaled", before: "replicas: 3", after: "replicas: 5",
			foreign: `{"spec":{"replicas":4}}`, back: "scale_deployment",
		},
		"DeploymentToNone": {
			reason: "a Scale with 0 replicas does not say so", object: deployment("web", 1),
			action: "scale_deployment", parameters: map[string]any{"deployment": "web", "replicas": 0},
			did: "scaled", before: "replicas: 1", after: "replicas: 0",
			foreign: `{"spec":{"replicas":2}}`, back: "scale_deployment",
		},
		"StatefulSet": {
			reason: "down", object: workload(kindStatefulSet, "db", 3),
			action: "scale_statefulset", parameters: map[string]any{"statefulset": "db", "replicas": 2},
			did: "scaled", before: "replicas: 3", after: "replicas: 2",
			foreign: `{"spec":{"replicas":4}}`, back: "scale_statefulset",
		},
	} {
		t.Run(name, tr.run)
	}
}
