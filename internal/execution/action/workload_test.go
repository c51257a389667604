package action

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// asked is a Deployment's name beside other parameters.
func asked(more map[string]any) map[string]any {
	parameters := map[string]any{"deployment": "web"}
	maps.Copy(parameters, more)
	return parameters
}

func TestContainers(t *testing.T) {
	for name, tr := range map[string]trial{
		"Image": {
			reason: "of one container, and of no other", object: deployment("web", 1),
			action: "update_image", parameters: asked(map[string]any{"container": "app", "image": "registry.example.com/app:2"}),
			did: "image updated", before: "image: registry.example.com/app:1", after: "image: registry.example.com/app:2",
			foreign: strings.ReplaceAll(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"IMAGE"},{"name":"proxy","image":"IMAGE"}]}}}}`, "IMAGE", "registry.example.com/other:1"),
			back:    "update_image",
		},
		"Resources": {
			reason: "some grow, and some are new", object: deployment("web", 1),
			action: "increase_resources", parameters: asked(map[string]any{"container": "app", "cpuRequest": "0.5", "memoryRequest": "512Mi", "memoryLimit": "2048Mi"}),
			did: "resource requirements updated", before: "limits.memory: 1Gi, requests.cpu: 100m", after: "limits.memory: 2Gi, requests.cpu: 500m, requests.memory: 512Mi",
			foreign: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"i","resources":{"limits":{"memory":"3Gi"}}}]}}}}`,
			back:    "increase_resources",
		},
	} {
		t.Run(name, tr.run)
	}
}

func TestPatchDeployment(t *testing.T) {
	const env = `{"spec":{"template":{"spec":{"containers":[{"name":"app","env":[{"name":"LEVEL","value":"debug"}]}]}}}}`
	for name, tr := range map[string]trial{
		"Strategic": {
			reason: "lists are merged by their keys", object: deployment("web", 1),
			action: "patch_deployment", parameters: asked(map[string]any{"patch": env}),
			did: "patched", before: "/spec/template/spec/containers: [", after: "/spec/template/spec/containers: [",
			foreign: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"i"}]}}}}`, back: "patch_deployment",
		},
		"Merge": {
			reason: "null takes away, and what was not there goes away again", object: deployment("web", 3),
			action: "patch_deployment", parameters: asked(map[string]any{"patchType": "merge", "patch": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"tier": "front"}, "annotations": map[string]any{"example.com/a": "b"}},
				"spec":     map[string]any{"replicas": 4, "minReadySeconds": 5, "template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}}},
			}}),
			did: "patched", before: "/spec/replicas: 3", after: "/metadata/annotations/example.com~1a: b, /metadata/labels/tier: front, /spec/minReadySeconds: 5, /spec/replicas: 4",
			foreign: `{"spec":{"minReadySeconds":7}}`, back: "patch_deployment",
		},
		"JSON": {
			reason: "operations can need another place after a while", object: deployment("web", 3),
			action: "patch_deployment", parameters: asked(map[string]any{"patchType": "json", "patch": []any{
				map[string]any{"op": "test", "path": "/spec/replicas", "value": 3},
				map[string]any{"op": "add", "path": "/spec/template/spec/containers/-", "value": map[string]any{"name": "more", "image": "registry.example.com/more:1"}},
				map[string]any{"op": "add", "path": "/spec/minReadySeconds", "value": 9},
			}}),
			did: "patched", before: "/spec/replicas: 3, /spec/template/spec/containers: [", after: "/spec/minReadySeconds: 9, /spec/replicas: 3",
			foreign: `{"spec":{"replicas":5}}`, back: "patch_deployment",
		},
	} {
		t.Run(name, tr.run)
	}
}

func TestRestart(t *testing.T) {
	at := "restartedAt: 2026-03-01T12:00:00Z"
	foreign := `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-02-01T00:00:00Z"}}}}}`
	for name, tr := range map[string]trial{
		"Deployment": {
			reason: "by kind and name", object: deployment("web", 1),
			action: "rollout_restart", parameters: map[string]any{"kind": "Deployment", "name": "web"},
			did: "restarted", after: at, foreign: foreign,
		},
		"StatefulSet": {
			reason: "by the kind as the parameter", object: workload(kindStatefulSet, "db", 1),
			action: "rollout_restart", parameters: map[string]any{"statefulset": "db"},
			did: "restarted", after: at, foreign: foreign,
		},
		"DaemonSet": {
			reason: "by an alias", object: workload(kindDaemonSet, "agent", 1),
			action: "restart_daemonset", parameters: map[string]any{"name": "agent"},
			did: "restarted", after: at, foreign: foreign,
		},
	} {
		t.Run(name, tr.run)
	}
}

// replicaSet is one that a Deployment has kept of a revision.
func replicaSet(o *unstructured.Unstructured, number, image string) map[string]any {
	set := workload("ReplicaSet", o.GetName()+"-"+number, 0)
	u := &unstructured.Unstructured{Object: set}
	u.SetAnnotations(map[string]string{revisionAnnotation: number})
	u.SetLabels(map[string]string{"app": o.GetName()})
	template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
	_ = unstructured.SetNestedField(template, "hash-of-"+number, "metadata", "labels", templateHashLabel)
	containers, _, _ := unstructured.NestedSlice(template, "spec", "containers")
	if first, ok := containers[0].(map[string]any); ok {
		first["image"] = image
	}
	_ = unstructured.SetNestedSlice(template, containers, "spec", "containers")
	_ = unstructured.SetNestedMap(set, template, "spec", "template")
	_ = unstructured.SetNestedField(set, map[string]any{"app": o.GetName(), templateHashLabel: "hash-of-" + number}, "spec", "selector", "matchLabels")
	u.SetOwnerReferences(controlledBy(o))
	return set
}

func withRevisions(s *stage, o *unstructured.Unstructured) {
	s.create(replicaSet(o, "1", "registry.example.com/app:0"))
	s.create(replicaSet(o, "2", "registry.example.com/app:0.9"))
	s.create(replicaSet(o, "3", "registry.example.com/app:1"))
	s.patch(o, `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"3"}}}`)
}

func TestRollbackDeployment(t *testing.T) {
	foreign := `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`
	for name, tr := range map[string]trial{
		"Before": {
			reason: "the revision before, whatever else there is", object: deployment("web", 1), setup: withRevisions,
			action: "rollback_deployment", parameters: asked(nil), did: "rolled back",
			before: `images: ["registry.example.com/app:1",`, after: `images: ["registry.example.com/app:0.9",`,
			foreign: foreign, back: "rollback_deployment",
		},
		"Revision": {
			reason: "the one that was asked for", object: deployment("web", 1), setup: withRevisions,
			action: "rollback_deployment", parameters: asked(map[string]any{"revision": 1}), did: "rolled back",
			before: `images: ["registry.example.com/app:1",`, after: `images: ["registry.example.com/app:0",`,
			foreign: foreign, back: "rollback_deployment",
		},
	} {
		t.Run(name, tr.run)
	}
}

func TestUpdateHPA(t *testing.T) {
	hpa := map[string]any{
		"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": int64(4)},
	}
	for name, tr := range map[string]trial{
		"Both": {
			reason: "one was never said", object: hpa,
			action: "update_hpa", parameters: map[string]any{"hpa": "web", "minReplicas": 2, "maxReplicas": 8},
			did: "patched", before: "maxReplicas: 4, minReplicas: 1", after: "maxReplicas: 8, minReplicas: 2",
			foreign: `{"spec":{"maxReplicas":5}}`, back: "update_hpa",
		},
		"One": {
			reason: "the other is somebody else's", object: hpa,
			action: "update_hpa", parameters: map[string]any{"hpa": "web", "maxReplicas": 8},
			did: "patched", before: "maxReplicas: 4", after: "maxReplicas: 8",
			foreign: `{"spec":{"maxReplicas":5}}`, back: "update_hpa",
		},
	} {
		t.Run(name, tr.run)
	}
}

// pod is one that no node has.
func pod(name string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "registry.example.com/app:1"}}},
	}
}

// withController has the Pod controlled by something that exists.
func withController(s *stage, o *unstructured.Unstructured) {
	owner := s.create(workload("ReplicaSet", "web", 0))
	o.SetOwnerReferences(controlledBy(owner))
	k, _ := findKind("v1", kindPod)
	if _, err := s.admin.resourceClient(k.GroupVersionResource, s.namespace).Update(s.Context(), o, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func TestPods(t *testing.T) {
	for name, tr := range map[string]trial{
		"Restart": {
			reason: "its controller creates a replacement", object: pod("web-1"), setup: withController,
			action: "restart_pod", parameters: map[string]any{"pod": "web-1", "gracePeriodSeconds": 0}, did: "deleted",
		},
		"Evict": {
			reason: "a disruption budget is asked", object: pod("web-1"), setup: withController,
			action: "restart_pod", parameters: map[string]any{"pod": "web-1", "evict": true}, did: "evicted",
		},
		"Delete": {
			reason: "nothing makes another", object: pod("web-1"),
			action: "delete_pod", parameters: map[string]any{"pod": "web-1"}, did: "deleted",
		},
	} {
		t.Run(name, tr.run)
	}
}

// TestRefused has objects that are not in a state for an action.
func TestRefused(t *testing.T) {
	t.Parallel()
	pausedOne := deployment("web", 1)
	_ = unstructured.SetNestedField(pausedOne, true, "spec", "paused")
	onDelete := workload(kindDaemonSet, "agent", 1)
	_ = unstructured.SetNestedField(onDelete, "OnDelete", "spec", "updateStrategy", "type")
	mirror := pod("static")
	_ = unstructured.SetNestedField(mirror, "hash", "metadata", "annotations", mirrorAnnotation)
	held := deployment("web", 1)
	_ = unstructured.SetNestedStringSlice(held, []string{"example.com/hold"}, "metadata", "finalizers")
	held = (&unstructured.Unstructured{Object: held}).DeepCopy().Object

	for name, tc := range map[string]struct {
		reason     string
		object     map[string]any
		setup      func(s *stage, o *unstructured.Unstructured)
		action     string
		parameters map[string]any
		detail     v1alpha1.Detail
		says       string
	}{
		"Gone":          {"there is none", deployment("other", 1), nil, "scale_deployment", asked(map[string]any{"replicas": 1}), v1alpha1.DetailTargetNotFound, "Deployment"},
		"PausedRestart": {"nothing would be restarted", pausedOne, nil, "rollout_restart", asked(nil), v1alpha1.DetailInvalidTargetState, "paused"},
		"PausedBack":    {"nothing would be rolled back", pausedOne, nil, "rollback_deployment", asked(nil), v1alpha1.DetailInvalidTargetState, "paused"},
		"OnDelete":      {"nothing would be restarted", onDelete, nil, "restart_daemonset", map[string]any{"name": "agent"}, v1alpha1.DetailInvalidTargetState, "OnDelete"},
		"Alone":         {"nothing would make another", pod("web-1"), nil, "restart_pod", map[string]any{"pod": "web-1"}, v1alpha1.DetailInvalidTargetState, "no controller"},
		"NoContainer":   {"which it has is said", deployment("web", 1), nil, "update_image", asked(map[string]any{"container": "nope", "image": "a"}), v1alpha1.DetailInvalidTargetState, "app proxy"},
		"FirstRevision": {"there is nothing before it", deployment("web", 1), nil, "rollback_deployment", asked(nil), v1alpha1.DetailInvalidTargetState, "no revision before"},
		"NoRevision":    {"those that there are are said", deployment("web", 1), withRevisions, "rollback_deployment", asked(map[string]any{"revision": 9}), v1alpha1.DetailInvalidTargetState, "3, 2, 1"},
		"Ending": {"it is going away", held, func(s *stage, o *unstructured.Unstructured) {
			s.remove(o)
			s.Cleanup(func() { s.patch(o, `{"metadata":{"finalizers":null}}`) })
		}, "scale_deployment", asked(map[string]any{"replicas": 4}), v1alpha1.DetailInvalidTargetState, "being deleted"},
		"Unseen": {"its controller is behind", deployment("web", 1), func(s *stage, o *unstructured.Unstructured) {
			s.patch(o, `{"status":{"observedGeneration":1}}`, "status")
			s.patch(o, `{"spec":{"replicas":2}}`)
		}, "scale_deployment", asked(map[string]any{"replicas": 4}), v1alpha1.DetailInvalidTargetState, "has not observed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o := s.create(tc.object)
			if tc.setup != nil {
				tc.setup(s, o)
			}
			r := s.request(tc.action, tc.parameters)
			_, err := r.Plan(t.Context(), s.as(r.Action, nil), newSubject("uid"))
			wantRefused(t, err, tc.detail, tc.says)
		})
	}
}

func wantRefused(t *testing.T, err error, detail v1alpha1.Detail, says string) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want one of %s", err, detail)
	}
	if refused.Detail != detail || !strings.Contains(refused.Message, says) {
		t.Errorf("refused for %s: %q, want %s: %q", refused.Detail, refused.Message, detail, says)
	}
}

// TestInvalidForObject has parameters that are good for other objects.
func TestInvalidForObject(t *testing.T) {
	s := newStage(t)
	s.create(deployment("web", 1))
	for name, tc := range map[string]struct {
		reason     string
		action     string
		parameters map[string]any
		says       string
	}{
		"Less":         {"it is to grow", "increase_resources", map[string]any{"container": "app", "memoryLimit": "512Mi"}, "memoryLimit: 512Mi is less than 1Gi"},
		"NewLimit":     {"it had all there was", "increase_resources", map[string]any{"container": "proxy", "cpuLimit": "1"}, "cpuLimit"},
		"NoneAnyMore":  {"it is to keep what it has", "increase_resources", map[string]any{"container": "app", "cpuRequest": "none"}, "cpuRequest"},
		"OverTheLimit": {"the API server would say so only later", "increase_resources", map[string]any{"container": "app", "memoryRequest": "3Gi"}, "more than the limit"},
		"NoSuchField":  {"the API server knows its types", "patch_deployment", map[string]any{"patch": `{"spec":{"replicas":"many"}}`}, "rejected by the API server"},
		"Immutable":    {"the API server knows its rules", "patch_deployment", map[string]any{"patch": `{"spec":{"selector":{"matchLabels":{"app":"other"}}}}`}, "immutable"},
		"FailedTest":   {"the object is not as the patch says", "patch_deployment", map[string]any{"patchType": "json", "patch": `[{"op":"test","path":"/spec/replicas","value":7},{"op":"add","path":"/spec/replicas","value":8}]`}, "an operation, such as test"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.request(tc.action, asked(tc.parameters))
			_, err := r.Plan(t.Context(), s.admin, newSubject("uid"))
			var invalid *InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Plan() = %v, want that %q", err, tc.says)
			}
		})
	}
}

// TestWorkloadsAsTheyShouldBe has objects that are as they should be.
func TestWorkloadsAsTheyShouldBe(t *testing.T) {
	s := newStage(t)
	s.create(deployment("web", 3))
	for name, tc := range map[string]struct {
		action     string
		parameters map[string]any
	}{
		"Scale":     {"scale_deployment", map[string]any{"replicas": 3}},
		"Image":     {"update_image", map[string]any{"container": "app", "image": "registry.example.com/app:1"}},
		"Resources": {"increase_resources", map[string]any{"container": "app", "memoryLimit": "1024Mi", "cpuRequest": "0.1"}},
		"Patch":     {"patch_deployment", map[string]any{"patch": `{"spec":{"replicas":3}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.request(tc.action, asked(tc.parameters))
			w := &wire{}
			c := s.as(r.Action, w)
			p := s.plan(c, r, newSubject("uid"))
			if len(p.Steps) != 0 || p.Steps == nil || p.Impact.ResourcesAffected != 0 || p.Diff != "" || p.Rollback.Available || p.Impact.Description == "" {
				t.Fatalf("plan %+v, want one without steps", p)
			}
			result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid")})
			wantCode(t, result, CodeOK)
			if result.Changed || len(w.sent()) > 0 || len(result.Resources) > 0 {
				t.Errorf("sent %v", w.sent())
			}
		})
	}
}

// TestPlanOfScale holds every word of a plan.
func TestPlanOfScale(t *testing.T) {
	s := newStage(t)
	o := s.create(deployment("web", 3))
	p := s.plan(s.admin, s.request("scale_deployment", asked(map[string]any{"replicas": 5})), newSubject("uid"))
	got := map[string]any{
		"parameters": string(p.Parameters.Raw), "before": string(p.Before.Raw), "diff": p.Diff, "impact": p.Impact,
		"back": string(p.Rollback.RollbackParameters.Raw), "expected": string(p.Rollback.ExpectedCurrentValues.Raw), "takes": p.Rollback.EstimatedRollbackDuration,
		"steps": p.Steps, "created": p.CreatedAt.String(),
	}
	want := map[string]any{
		"parameters": `{"deployment":"web","namespace":"` + s.namespace + `","replicas":5}`, "before": `{"replicas":3}`,
		"diff": "- replicas: 3\n+ replicas: 5\n",
		"impact": v1alpha1.EstimatedImpact{
			ResourcesAffected: 1, ReplicasChanged: "3 -> 5",
			Description: "Deployment " + s.namespace + "/web is scaled from 3 to 5 replicas",
		},
		"back": `{"deployment":"web","namespace":"` + s.namespace + `","replicas":3}`, "expected": `{"replicas":5}`, "takes": "10s",
		"steps": []v1alpha1.PlanStep{{
			Description: "scale Deployment " + s.namespace + "/web from 3 to 5 replicas", Verb: "patch", APIVersion: "apps/v1", Resource: "deployments",
			Subresource: "scale", Namespace: s.namespace, Name: "web", UID: o.GetUID(), PatchType: "application/merge-patch+json", Body: `{"spec":{"replicas":5}}`,
		}},
		"created": "2026-03-01 12:00:00 +0000 UTC",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if p.Target.UID != o.GetUID() || p.Target.ResourceVersion != o.GetResourceVersion() || p.Hash != HashPlanEffect(p) || len(p.Hash) != 64 {
		t.Errorf("target %+v, hash %s", p.Target, p.Hash)
	}
}
