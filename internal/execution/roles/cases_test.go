package roles_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// A trial is one way to use an action.
type trial struct {
	reason string
	// setup makes what it acts on, and gives the parameters.
	setup func(p *props) map[string]any
}

// props are the objects that one trial plays with.
type props struct {
	*testing.T
	*stage

	suffix string
}

// name is a name that no other trial of the action has.
func (p *props) name(prefix string) string { return prefix + "-" + p.suffix }

// make creates an object in the namespace of targets, unless it says another.
func (p *props) make(apiVersion, resource, kind, name string, rest map[string]any) *unstructured.Unstructured {
	p.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(o.Object, rest)
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		p.Fatal(err)
	}
	api := p.client.Dynamic.Resource(gv.WithResource(resource))
	if kind == "Node" || kind == "StorageClass" {
		ctx := p.Context()
		p.Cleanup(func() { _ = api.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) })
		o, err = api.Create(ctx, o, metav1.CreateOptions{})
	} else {
		if o.GetNamespace() == "" {
			o.SetNamespace(p.targets)
		}
		o, err = api.Namespace(o.GetNamespace()).Create(p.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		p.Fatalf("make %s %s: %v", kind, name, err)
	}
	return o
}

// status says how an object fares.
func (p *props) status(o *unstructured.Unstructured, resource string, status map[string]any) {
	p.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		p.Fatal(err)
	}
	gvr := o.GroupVersionKind().GroupVersion().WithResource(resource)
	if _, err = p.client.Dynamic.Resource(gvr).Namespace(o.GetNamespace()).Patch(p.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		p.Fatal(err)
	}
}

func (p *props) workload(kind string) *unstructured.Unstructured {
	p.Helper()
	name := p.name("web")
	app := map[string]any{"app": name}
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": app},
		"template": map[string]any{"metadata": map[string]any{"labels": app}, "spec": podSpec()},
	}
	resource := map[string]string{"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}[kind]
	return p.make("apps/v1", resource, kind, name, map[string]any{"spec": spec})
}

func podSpec() map[string]any {
	return map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/web:1"}}}
}

// pod makes a Pod with an owner, where there is one, on a Node, where one is named.
func (p *props) pod(name, node string, owner *unstructured.Unstructured) *unstructured.Unstructured {
	p.Helper()
	metadata := map[string]any{"labels": map[string]any{"app": p.name("web")}}
	if owner != nil {
		metadata["ownerReferences"] = []any{map[string]any{
			"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(), "uid": string(owner.GetUID()), "controller": true,
		}}
	}
	spec := podSpec()
	if node != "" {
		spec["nodeName"] = node
	}
	return p.make("v1", "pods", "Pod", name, map[string]any{"metadata": metadata, "spec": spec})
}

func (p *props) node() string {
	p.Helper()
	return p.make("v1", "nodes", "Node", p.targets+"-"+p.suffix, nil).GetName()
}

// of is the parameters of a namespaced target.
func (p *props) of(parameter, name string, more map[string]any) map[string]any {
	parameters := map[string]any{parameter: name, "namespace": p.targets}
	maps.Copy(parameters, more)
	return parameters
}

func runtimeJSON(parameters map[string]any) (*runtime.RawExtension, error) {
	raw, err := json.Marshal(parameters)
	return &runtime.RawExtension{Raw: raw}, err
}

// cases are the trials of each action.
func cases() map[string][]trial {
	deployment := func(more map[string]any) func(p *props) map[string]any {
		return func(p *props) map[string]any {
			return p.of("deployment", p.workload("Deployment").GetName(), more)
		}
	}
	all := map[string][]trial{
		"scale_deployment":   {{reason: "more of it", setup: deployment(map[string]any{"replicas": 3})}},
		"update_image":       {{reason: "another image", setup: deployment(map[string]any{"container": "main", "image": "example.com/web:2"})}},
		"increase_resources": {{reason: "more memory", setup: deployment(map[string]any{"container": "main", "memoryRequest": "1Gi"})}},
		"patch_deployment": {{reason: "an annotation", setup: deployment(map[string]any{
			"patchType": "merge", "patch": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}},
		})}},
		"scale_statefulset": {{reason: "more of it", setup: func(p *props) map[string]any {
			return p.of("statefulset", p.workload("StatefulSet").GetName(), map[string]any{"replicas": 3})
		}}},
		"rollback_deployment": {{reason: "an earlier revision", setup: earlierRevision}},
		"update_hpa":          {{reason: "of a Deployment", setup: autoscaled("Deployment")}, {reason: "of a StatefulSet", setup: autoscaled("StatefulSet")}},
		"notify_only":         {{reason: "a word", setup: func(*props) map[string]any { return map[string]any{"message": "look here"} }}},
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		all["rollout_restart"] = append(all["rollout_restart"], trial{reason: kind, setup: func(p *props) map[string]any {
			return p.of("name", p.workload(kind).GetName(), map[string]any{"kind": kind})
		}})
		all["rollout_status"] = append(all["rollout_status"], trial{reason: kind, setup: rolledOut(kind)})
		all["collect_diagnostics"] = append(all["collect_diagnostics"], trial{reason: kind, setup: func(p *props) map[string]any {
			p.unwell()
			return p.of("name", p.workload(kind).GetName(), map[string]any{"kind": kind})
		}})
	}
	all["collect_diagnostics"] = append(all["collect_diagnostics"], trial{reason: "Pod", setup: func(p *props) map[string]any {
		return p.of("name", p.unwell().GetName(), map[string]any{"kind": "Pod"})
	}})
	for _, name := range []string{"delete_pod", "restart_pod"} {
		for _, evict := range []bool{false, true} {
			all[name] = append(all[name], trial{reason: fmt.Sprintf("evict: %t", evict), setup: func(p *props) map[string]any {
				return p.of("pod", p.pod(p.name("web"), "", p.workload("StatefulSet")).GetName(), map[string]any{"evict": evict})
			}})
		}
	}
	maps.Copy(all, nodeCases())
	maps.Copy(all, dataCases())
	maps.Copy(all, podCases())
	return all
}

// earlierRevision is a Deployment with two ReplicaSets, as its controller would
// have made them.
func earlierRevision(p *props) map[string]any {
	d := p.workload("Deployment")
	for revision, image := range map[string]string{"1": "example.com/web:0", "2": "example.com/web:1"} {
		template, _, _ := unstructured.NestedMap(d.Object, "spec", "template")
		template["spec"] = map[string]any{"containers": []any{map[string]any{"name": "main", "image": image}}}
		p.make("apps/v1", "replicasets", "ReplicaSet", d.GetName()+"-"+revision, map[string]any{
			"metadata": map[string]any{
				"annotations": map[string]any{"deployment.kubernetes.io/revision": revision},
				"labels":      map[string]any{"app": d.GetName()},
				"ownerReferences": []any{map[string]any{
					"apiVersion": "apps/v1", "kind": "Deployment", "name": d.GetName(), "uid": string(d.GetUID()), "controller": true,
				}},
			},
			"spec": map[string]any{"replicas": 0, "selector": map[string]any{"matchLabels": map[string]any{"app": d.GetName()}}, "template": template},
		})
	}
	patch := []byte(`{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"}}}`)
	if _, err := p.admin.AppsV1().Deployments(p.targets).Patch(p.Context(), d.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		p.Fatal(err)
	}
	return p.of("deployment", d.GetName(), nil)
}

// rolledOut is a workload of a kind whose controller says that all is well.
func rolledOut(kind string) func(p *props) map[string]any {
	resource := map[string]string{"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}[kind]
	return func(p *props) map[string]any {
		o := p.workload(kind)
		status := map[string]any{
			"observedGeneration": o.GetGeneration(), "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
		}
		if kind == "DaemonSet" {
			status = map[string]any{
				"observedGeneration": o.GetGeneration(), "currentNumberScheduled": 1, "numberMisscheduled": 0,
				"desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1,
			}
		}
		p.status(o, resource, status)
		return p.of("name", o.GetName(), map[string]any{"kind": kind})
	}
}

// unwell is a Pod whose container does not start.
func (p *props) unwell() *unstructured.Unstructured {
	p.Helper()
	pod := p.pod(p.name("unwell"), "", nil)
	p.status(pod, "pods", map[string]any{"phase": "Pending", "containerStatuses": []any{map[string]any{
		"name": "main", "image": "example.com/web:1", "imageID": "", "ready": false, "restartCount": 1,
		"state": map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff"}},
	}}})
	return pod
}

func nodeCases() map[string][]trial {
	of := func(more map[string]any) func(p *props) map[string]any {
		return func(p *props) map[string]any {
			parameters := map[string]any{"node": p.node()}
			maps.Copy(parameters, more)
			return parameters
		}
	}
	with := func(patch string, more map[string]any) func(p *props) map[string]any {
		return func(p *props) map[string]any {
			parameters := of(more)(p)
			if _, err := p.admin.CoreV1().Nodes().Patch(p.Context(), fmt.Sprint(parameters["node"]), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				p.Fatal(err)
			}
			return parameters
		}
	}
	return map[string][]trial{
		"cordon_node":   {{reason: "an open one", setup: of(nil)}},
		"uncordon_node": {{reason: "a closed one", setup: with(`{"spec":{"unschedulable":true}}`, nil)}},
		"taint_node":    {{reason: "another taint", setup: of(map[string]any{"key": "a", "value": "b", "effect": "NoSchedule"})}},
		"untaint_node": {{reason: "a taint that there is", setup: with(`{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`,
			map[string]any{"key": "a", "effect": "NoSchedule"})}},
		"drain_node": {{reason: "a Pod to evict, and one to leave", setup: func(p *props) map[string]any {
			node := p.node()
			p.pod(p.name("evicted"), node, p.workload("StatefulSet"))
			p.suffixed("ds", func() { p.pod(p.name("left"), node, p.workload("DaemonSet")) })
			return map[string]any{"node": node, "gracePeriodSeconds": 0}
		}}},
	}
}

// suffixed has other names while f runs.
func (p *props) suffixed(more string, f func()) {
	was := p.suffix
	p.suffix += more
	f()
	p.suffix = was
}

func dataCases() map[string][]trial {
	return map[string][]trial{
		"patch_configmap": {{reason: "a key", setup: func(p *props) map[string]any {
			p.make("v1", "configmaps", "ConfigMap", p.name("settings"), map[string]any{"data": map[string]any{"level": "info"}})
			return p.of("configmap", p.name("settings"), map[string]any{"data": map[string]any{"level": "debug"}})
		}}},
		"update_secret": {{reason: "a key", setup: func(p *props) map[string]any {
			p.make("v1", "secrets", "Secret", p.name("target"), map[string]any{"stringData": map[string]any{"password": "old"}})
			p.make("v1", "secrets", "Secret", p.name("source"), map[string]any{
				"metadata":   map[string]any{"namespace": p.executor, "labels": map[string]any{action.LabelSecretSource: "true"}},
				"stringData": map[string]any{"password": "new"},
			})
			return p.of("secret", p.name("target"), map[string]any{"dataFrom": []any{map[string]any{
				"key": "password", "secretKeyRef": map[string]any{"name": p.name("source"), "key": "password"},
			}}})
		}}},
		"expand_pvc": {{reason: "twice as much", setup: func(p *props) map[string]any {
			class := p.targets + "-" + p.suffix
			p.make("storage.k8s.io/v1", "storageclasses", "StorageClass", class, map[string]any{"provisioner": "example.com/none", "allowVolumeExpansion": true})
			claim := p.make("v1", "persistentvolumeclaims", "PersistentVolumeClaim", p.name("data"), map[string]any{"spec": map[string]any{
				"storageClassName": class, "accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
			}})
			p.status(claim, "persistentvolumeclaims", map[string]any{"phase": "Bound", "capacity": map[string]any{"storage": "1Gi"}})
			return p.of("pvc", p.name("data"), map[string]any{"size": "2Gi"})
		}}},
		"apply_manifest": {
			{reason: "a new object", setup: func(p *props) map[string]any { return map[string]any{"manifest": p.manifest("new")} }},
			{reason: "an object that there is", setup: func(p *props) map[string]any {
				p.make("v1", "configmaps", "ConfigMap", p.name("settings"), nil)
				return map[string]any{"manifest": p.manifest("new")}
			}},
			{reason: "no object any more", setup: func(p *props) map[string]any {
				p.make("v1", "configmaps", "ConfigMap", p.name("settings"), nil)
				return map[string]any{"manifest": p.manifest("new"), "state": "absent"}
			}},
		},
	}
}

func (p *props) manifest(value string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": p.name("settings"), "namespace": p.targets},
		"data": map[string]any{"key": value},
	}
}

func podCases() map[string][]trial {
	quarantined := func(p *props) map[string]any {
		pod := p.pod(p.name("web"), "", nil)
		return p.of("pod", pod.GetName(), nil)
	}
	return map[string][]trial{
		"quarantine_pod": {{reason: "a Pod", setup: quarantined}},
		"release_pod":    {{reason: "a Pod in quarantine", setup: func(p *props) map[string]any { return p.quarantine(quarantined(p)) }}},
		"update_network_policy": {{reason: "another spec", setup: func(p *props) map[string]any {
			p.make("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", p.name("web"), map[string]any{"spec": map[string]any{"podSelector": map[string]any{}}})
			return p.of("networkpolicy", p.name("web"), map[string]any{"spec": map[string]any{
				"podSelector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			}})
		}}},
	}
}

// quarantine puts a Pod into quarantine, as an administrator, and gives the way
// back.
func (p *props) quarantine(parameters map[string]any) map[string]any {
	p.Helper()
	raw, err := runtimeJSON(parameters)
	if err != nil {
		p.Fatal(err)
	}
	request, err := action.Parse(&v1alpha1.KubernetesExecutionSpec{Action: "quarantine_pod", Parameters: raw})
	if err != nil {
		p.Fatal(err)
	}
	subject := action.Subject{UID: types.UID(p.targets + p.suffix + "-before"), Created: time.Now()}
	plan, err := request.Plan(p.Context(), p.client, subject)
	if err != nil {
		p.Fatal(err)
	}
	if r := action.Execute(p.Context(), p.client, plan, action.Run{Subject: subject}); r.Code != action.CodeOK {
		p.Fatal(r.Message)
	}
	var back map[string]any
	if err = json.Unmarshal(plan.Rollback.RollbackParameters.Raw, &back); err != nil {
		p.Fatal(err)
	}
	return back
}

// autoscaled is a HorizontalPodAutoscaler that may make more of a workload.
func autoscaled(kind string) func(p *props) map[string]any {
	return func(p *props) map[string]any {
		p.make("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", p.name("hpa"), map[string]any{"spec": map[string]any{
			"maxReplicas": 3, "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": kind, "name": p.workload(kind).GetName()},
		}})
		return p.of("hpa", p.name("hpa"), map[string]any{"maxReplicas": 5})
	}
}
