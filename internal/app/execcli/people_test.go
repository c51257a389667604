package execcli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
)

const jobName = "kx-scale-web-run-1"

// stuck holds the surroundings of a stuck execution: a Job with logs, a running controller, its
// settings, and data for administrators only.
const stuck = `
apiVersion: batch/v1
kind: Job
metadata: {name: ` + jobName + `, labels: {owner: kubernetesexecution, kubernaut.io/execution-id: NAME, kubernaut.io/execution-uid: a-uid}}
spec:
  template:
    metadata: {labels: {owner: kubernetesexecution, kubernaut.io/execution-id: NAME, kubernaut.io/execution-uid: a-uid}}
    spec: {restartPolicy: Never, containers: [{name: runner, image: any, command: [/bin/echo, web was scaled]}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: fleetloop-execution-controller}
spec: {holderIdentity: controller-0}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: safety-policies}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: emergency-stop}
data: {reason: incident 4711}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: of-others}
---
apiVersion: v1
kind: Secret
metadata: {name: of-an-action}
`

// desk is a control plane with the shipped roles and one user for each.
type desk struct {
	*testing.T
	bed    *kubebed.Bed
	people map[string]string // roles to kubeconfigs
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	bed, err := kubebed.Start(t.Context(), kubebed.Options{
		Dir: filepath.Join(t.TempDir(), "bed"), Controllers: kubebed.JobControllers(), Scheduler: true, CRDs: []string{"../../../deploy/crds"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Error(err)
		}
	})
	d := &desk{t, bed, map[string]string{}}
	d.runNode()
	d.mustRun("create", "namespace", execcli.DefaultNamespace)
	d.mustRun("apply", "-f", "../../../deploy/rbac/actions-people.yaml")
	for _, role := range []string{"viewer", "approver", "administrator", "requester-low"} {
		if d.people[role], err = bed.WriteUserKubeconfig("person-" + role); err != nil {
			t.Fatal(err)
		}
		d.mustRun("create", "rolebinding", role, "-n", execcli.DefaultNamespace, "--clusterrole=kubernaut-"+role, "--user=person-"+role)
	}
	return d
}

// runNode runs Pods and returns their logs.
func (d *desk) runNode() {
	d.Helper()
	n, err := processnode.New(d.bed.Config(), processnode.Options{})
	if err != nil {
		d.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	d.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			d.Errorf("the node ended: %v", err)
		}
	})
	kubebedtest.Eventually(d, func(context.Context) error { return n.Ready() })
}

// runKubectl runs kubectl as a user with the role, or as a cluster administrator without one.
func (d *desk) runKubectl(ctx context.Context, role string, args ...string) (string, error) {
	kubeconfig := d.people[role]
	if role == "" {
		kubeconfig = d.bed.AdminKubeconfig()
	}
	cmd := exec.CommandContext(ctx, filepath.Join(d.bed.Assets(), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: kubectl %s: %w: %s", role, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (d *desk) mustRun(args ...string) {
	d.Helper()
	if _, err := d.runKubectl(d.Context(), "", args...); err != nil {
		d.Fatal(err)
	}
}

// documented returns the commands of the guide for a stuck execution.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/how-to/run-executions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Troubleshooting\n")
	if !ok {
		t.Fatal("the guide does not say what to do when it is stuck")
	}
	var list []string
	for _, m := range regexp.MustCompile("`kubectl ([^`]+)`").FindAllStringSubmatch(section, -1) {
		list = append(list, m[1])
	}
	return list
}

// suggested are the commands of kubectl that are suggested about executions,
// however they stand.
func suggested() []string {
	var list []string
	for _, phase := range []v1alpha1.Phase{
		v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval,
		v1alpha1.PhaseExecuting, v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed,
	} {
		for _, detail := range []v1alpha1.Detail{"", v1alpha1.DetailEmergencyStop, v1alpha1.DetailPolicyUnavailable} {
			ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: execcli.DefaultNamespace, Name: "NAME", UID: "a-uid"}}
			ke.Status.Phase, ke.Status.ReasonDetail, ke.Status.JobName = phase, detail, jobName
			ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{}
			for _, step := range execcli.Advise(ke, execcli.OutputOptions{Namespace: execcli.DefaultNamespace}).Do {
				if args, ok := strings.CutPrefix(step.Command, "kubectl "); ok {
					list = append(list, args)
				}
			}
		}
	}
	return list
}

// TestPeopleCanAskWhy verifies that a user with one shipped role can run every command that the
// guide and the command line suggest for a stuck execution, and no more.
func TestPeopleCanAskWhy(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	manifest := filepath.Join(t.TempDir(), "stuck.yaml")
	if err := os.WriteFile(manifest, []byte(stuck), 0o600); err != nil {
		t.Fatal(err)
	}
	d.mustRun("apply", "-n", execcli.DefaultNamespace, "-f", manifest)
	d.mustRun("wait", "-n", execcli.DefaultNamespace, "--for=condition=complete", "--timeout=60s", "job/"+jobName)
	commands := append(documented(t), suggested()...)
	if len(commands) < 8 {
		t.Errorf("there are but %d commands: %v", len(commands), commands)
	}
	for role := range d.people {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			kubebedtest.Eventually(t, func(ctx context.Context) error { // roles take a moment to be in force
				out, err := d.runKubectl(ctx, role, "logs", "-n", execcli.DefaultNamespace, "job/"+jobName)
				if err == nil && out != "web was scaled\n" {
					err = fmt.Errorf("the log is %q", out)
				}
				return err
			})
			for _, command := range commands {
				out, err := d.runKubectl(t.Context(), role, strings.Fields(command)...)
				if err == nil && (strings.TrimSpace(out) == "" || strings.Contains(out, "No resources found")) {
					err = errors.New("it shows nothing")
				}
				if err != nil {
					t.Errorf("%s: kubectl %s: %v", role, command, err)
				}
			}
			d.wantNoMore(t, role)
		})
	}
}

// wantNoMore verifies that read access never includes acting as an action, reading its Secrets, or
// other namespaces.
func (d *desk) wantNoMore(t *testing.T, role string) {
	t.Helper()
	for _, question := range []string{
		"create jobs", "delete jobs", "patch jobs", "create pods", "delete pods",
		"create pods --subresource=exec", "get pods --subresource=exec", "create pods --subresource=attach", "create pods --subresource=portforward",
		"get secrets", "create serviceaccounts --subresource=token", "patch leases", "create events",
		"get pods -n default", "get pods --subresource=log -n default", "list kubernetesexecutions -n default",
		"get configmap/of-others", "patch configmap/safety-policies", "create configmaps",
	} {
		if role == "administrator" && strings.Contains(question, "configmap") {
			continue
		}
		args := append([]string{"auth", "can-i", "-n", execcli.DefaultNamespace}, strings.Fields(question)...)
		if out, err := d.runKubectl(t.Context(), role, args...); err == nil || !strings.Contains(out, "no") {
			t.Errorf("%s may %s: %s, %v", role, question, out, err)
		}
	}
}
