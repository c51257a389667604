package executionapp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
	"github.com/fleetloop/fleetloop/internal/processtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// newJob is a Job as the controller makes it with these settings.
func newJob(t interface {
	Helper()
	Fatal(args ...any)
}, cfg executionapp.Part, does string,
) *batchv1.Job {
	t.Helper()
	ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: "e", UID: "uid"}}
	plan := &v1alpha1.Plan{
		Action: does, Target: v1alpha1.PlanTarget{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u"},
		Steps: []v1alpha1.PlanStep{}, Parameters: &runtime.RawExtension{Raw: []byte(`{}`)}, CreatedAt: metav1.NewTime(time.Unix(0, 0)),
	}
	plan.Hash = action.HashPlanEffect(plan)
	j, err := job.Build(ke, plan, v1alpha1.PurposeExecute, 1, executionapp.JobsOf(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// newPart is the configuration that a file gives.
func newPart(t *testing.T, file string) executionapp.Part {
	t.Helper()
	cfg := executionapp.OverriddenDefaults()
	if _, err := settings.Load(&cfg, settings.Source{File: "file.yaml", FileData: []byte(file)}); err != nil {
		t.Fatal(err)
	}
	return cfg.Part
}

// TestJobsAreAsTheSettingsSay, from the file to the Pod, and the API server
// takes them so.
func TestJobsAreAsTheSettingsSay(t *testing.T) {
	t.Parallel()
	cfg := newPart(t, `
namespace: `+kubebedtest.Namespace(t)+`
runner:
  image: runner
  priority_class: high
  pull_secrets: [pull]
  node_selector: {node-role.kubernetes.io/infra: ""}
  tolerations:
    - {key: node-role.kubernetes.io/infra, effect: NoSchedule, operator: Exists}
    - {key: pool, value: ops, effect: NoExecute, tolerationSeconds: 60}
  resources:
    requests: {cpu: 0.1, memory: 128Mi}
    limits: {memory: 134217728}
  action_resources:
    drain_node: {limits: {memory: 1Gi, example.com/gpu: 1}}
`)
	sixty := int64(60)
	type placed struct {
		Priority    string
		Secrets     []corev1.LocalObjectReference
		Selector    map[string]string
		Tolerations []corev1.Toleration
		Resources   corev1.ResourceRequirements
	}
	want := placed{
		"high",
		[]corev1.LocalObjectReference{{Name: "pull"}},
		map[string]string{"node-role.kubernetes.io/infra": ""},
		[]corev1.Toleration{
			{Key: "node-role.kubernetes.io/infra", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: "pool", Operator: corev1.TolerationOpEqual, Value: "ops", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &sixty},
		},
		corev1.ResourceRequirements{},
	}
	for does, resources := range map[string]corev1.ResourceRequirements{
		"scale_deployment": {
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("128Mi")},
		},
		"drain_node": {Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi"), "example.com/gpu": resource.MustParse("1")}},
	} {
		j := newJob(t, cfg, does)
		pod := j.Spec.Template.Spec
		want.Resources = resources
		got := placed{pod.PriorityClassName, pod.ImagePullSecrets, pod.NodeSelector, pod.Tolerations, pod.Containers[0].Resources}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", does, diff)
		}
		if err := dryRunJob(t, j); err != nil {
			t.Errorf("%s: %v", does, err)
		}
	}
}

// dryRunJob creates a Job as a dry run and returns the error of the API server.
func dryRunJob(t *testing.T, j *batchv1.Job) error {
	t.Helper()
	c, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.BatchV1().Jobs(j.Namespace).Create(t.Context(), j, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// TestRefusesWhatMakesNoJob: a controller starts with those settings alone by
// which the API server takes its Jobs, rather than fail one execution after
// another.
func TestRefusesWhatMakesNoJob(t *testing.T) {
	t.Parallel()
	namespace := kubebedtest.Namespace(t)
	some := func(values ...string) *rapid.Generator[string] { return rapid.SampledFrom(values) }
	amounts := rapid.MapOfN(some("cpu", "cpu", "memory", "memory", "ephemeral-storage", "example.com/gpu", "example.com/gpu", "memroy", "a b"),
		rapid.Map(some("0", "1", "1", "1", "500m", "64Mi", "1Gi"), func(text string) executionapp.Quantity {
			return executionapp.Quantity{Quantity: resource.MustParse(text)}
		}), 0, 2)
	toleration := rapid.Custom(func(t *rapid.T) executionapp.Toleration {
		return executionapp.Toleration{
			Key: some("infra", "infra", "example.com/pool", "", "in fra", "a/b/c").Draw(t, "key"), Operator: some("Equal", "Exists").Draw(t, "operator"),
			Value: some("", "", "", "ops", "o p s").Draw(t, "value"), Effect: some("", "NoSchedule", "NoExecute", "NoExecute").Draw(t, "effect"),
			Seconds: rapid.Ptr(rapid.Int64Range(-1, 60), true).Draw(t, "seconds"),
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		cfg := executionapp.Part{Namespace: namespace, Runner: executionapp.RunnerConfig{
			Image:        "runner",
			NodeSelector: rapid.MapOfN(some("pool", "pool", "example.com/pool", "po ol"), some("", "", "ops", "o p s"), 0, 1).Draw(rt, "selector"),
			Tolerations:  rapid.SliceOfN(toleration, 0, 1).Draw(rt, "tolerations"),
			Resources:    executionapp.Resources{Requests: amounts.Draw(rt, "requests"), Limits: amounts.Draw(rt, "limits")},
		}}
		refused := cfg.Runner.Check()
		err := dryRunJob(t, newJob(rt, cfg, "scale_deployment"))
		switch {
		case err != nil && !apierrors.IsInvalid(err):
			rt.Fatal(err)
		case refused == nil && err != nil:
			rt.Fatalf("it would start, and the API server says %v", err)
		case refused != nil && err == nil && !strings.Contains(refused.Error(), "not a whole number"): // of which the API server but warns
			rt.Fatalf("the API server would take what is refused: %v", refused)
		}
	})
}

// TestSaysWhichSettingOfTheRunner is wrong, and why.
func TestSaysWhichSettingOfTheRunner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		file   string
		want   string
	}{
		"Effect":    {"a misspelt effect", `tolerations: [{key: a, effect: NoShedule}]`, `key "runner.tolerations[0].effect": must be one of NoSchedule, PreferNoSchedule, NoExecute; got "NoShedule"; did you mean "NoSchedule"?`},
		"Operator":  {"likewise", `tolerations: [{key: a, operator: Exist}]`, `did you mean "Exists"?`},
		"Key":       {"an unknown key", `tolerations: [{kee: a}]`, `unknown key "runner.tolerations[0].kee"`},
		"All":       {"all taints are borne on purpose alone", `tolerations: [{effect: NoSchedule}]`, `runner.tolerations[0]: key is required`},
		"Seconds":   {"they would do nothing", `tolerations: [{key: a, effect: NoSchedule, toleration_seconds: 3}]`, `runner.tolerations[0]: toleration_seconds is allowed only with the effect NoExecute`},
		"Selector":  {"no label is like that", `node_selector: {pool: "a b"}`, `runner.node_selector: "pool"="a b" is not a valid label`},
		"Quantity":  {"a unit that there is not", `resources: {limits: {memory: 1GB}}`, `key "runner.resources.limits[memory]": is invalid: want a quantity such as 200m or 256Mi; got "1GB"`},
		"Negative":  {"less than nothing", `resources: {limits: {cpu: -1}}`, `must not be negative`},
		"Thousand":  {"a thousandth of a byte", `resources: {requests: {memory: 256m}}`, `runner.resources: requests[memory]: 256m is not a whole number`},
		"Resource":  {"a misspelt resource", `resources: {limits: {memroy: 1Gi}}`, `runner.resources: limits[memroy]: unknown resource`},
		"Limit":     {"the API server takes none of the Jobs", `resources: {requests: {cpu: 1}, limits: {cpu: 500m}}`, `runner.resources: requests[cpu] is 1, more than the limit 500m`},
		"Extended":  {"devices are not shared", `resources: {requests: {example.com/gpu: 1}}`, `runner.resources: requests[example.com/gpu] must equal the limit`},
		"Action":    {"an action that there is not", `action_resources: {drain: {limits: {memory: 1Gi}}}`, `runner.action_resources[drain]: unknown action "drain"`},
		"NoJob":     {"there is nothing to run", `action_resources: {notify_only: {limits: {memory: 1Gi}}}`, `runner.action_resources[notify_only]: action "notify_only" has no Job`},
		"Nothing":   {"is that none, or the usual?", `action_resources: {drain_node: {}}`, `runner.action_resources[drain_node]: set requests or limits`},
		"OfActions": {"theirs are looked at, too", `action_resources: {drain_node: {limits: {memory: 1m}}}`, `runner.action_resources[drain_node]: limits[memory]: 1m is not a whole number`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "file.yaml")
			if err := os.WriteFile(file, []byte("runner:\n  image: runner\n  "+c.file+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := processtest.StartCommandInGoroutine(t, executionapp.NewCommand, map[string]string{"AUDIT": "off"}, "config", "check", "--config", file).WaitUntilEnded(t)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v lacks %q", c.reason, err, c.want)
			}
		})
	}
}
