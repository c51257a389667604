package fleettest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
)

// Answer is the result of a command.
type Answer struct {
	Out, Err string
	Code     int
}

// User is a user with groups.
type User struct {
	Name   string
	Groups []string
}

// Run runs a command of fleetloop as a user.
func (f *Fleet) Run(user string, args ...string) Answer {
	f.Helper()
	return f.runCommand(User{Name: user}, args...)
}

func (f *Fleet) runCommand(user User, args ...string) Answer {
	f.Helper()
	path := filepath.Join(f.TempDir(), "kubeconfig")
	const mode = 0o600
	if err := os.WriteFile(path, []byte(kubebedtest.FormatKubeconfig(f, f.UserConfig(user.Name, user.Groups...))), mode); err != nil {
		f.Fatal(err)
	}
	var out, errs bytes.Buffer
	env := cli.Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		LookupEnv: func(name string) (string, bool) { return path, name == "KUBECONFIG" },
	}
	root := cli.Command(env)
	root.AddCommand(execcli.Commands(env)...)
	ctx, cancel := context.WithTimeout(f.Context(), kubebedtest.Patience)
	defer cancel()
	code := cli.Run(ctx, env, root, append(args, "--namespace="+f.Namespace))
	return Answer{out.String(), errs.String(), code}
}

// WantCommand runs a fleetloop command as a user and verifies its exit code and output.
func (f *Fleet) WantCommand(user string, code int, args []string, says ...string) Answer {
	f.Helper()
	return f.WantCommandAs(User{Name: user}, code, args, says...)
}

// WantCommandAs is like WantCommand for a user with groups.
func (f *Fleet) WantCommandAs(user User, code int, args []string, says ...string) Answer {
	f.Helper()
	a := f.runCommand(user, args...)
	if a.Code != code {
		f.Errorf("fleetloop %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), a.Code, code, a.Out, a.Err)
	}
	for _, text := range says {
		if !strings.Contains(a.Out+a.Err, text) {
			f.Errorf("fleetloop %s: lacks %q\n%s%s", strings.Join(args, " "), text, a.Out, a.Err)
		}
	}
	return a
}

// Scale returns the arguments of the command that scales a Deployment.
func Scale(namespace, name string, replicas int, more ...string) []string {
	return append(
		[]string{"exec", "scale_deployment", "namespace=" + namespace, "deployment=" + name, fmt.Sprintf("replicas=%d", replicas)},
		more...)
}

// CreateExecution creates an execution as a user.
func (f *Fleet) CreateExecution(user string, ke *v1alpha1.KubernetesExecution) *v1alpha1.KubernetesExecution {
	f.Helper()
	ke.Namespace = f.Namespace
	if err := f.ClientAs(user).Create(f.Context(), ke); err != nil {
		f.Fatal(err)
	}
	return ke
}

// AwaitPhase waits until an execution is in a phase and returns it.
func (f *Fleet) AwaitPhase(name string, phase v1alpha1.Phase) *v1alpha1.KubernetesExecution {
	f.Helper()
	return f.AwaitExecution(name, func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.Phase != phase {
			return fmt.Errorf(
				"execution %q is %q (%s %s: %s), want %q",
				name,
				ke.Status.Phase,
				ke.Status.Reason,
				ke.Status.ReasonDetail,
				ke.Status.Message,
				phase,
			)
		}
		return nil
	})
}

// AwaitExecution waits until check accepts an execution.
func (f *Fleet) AwaitExecution(name string, check func(*v1alpha1.KubernetesExecution) error) *v1alpha1.KubernetesExecution {
	f.Helper()
	var ke v1alpha1.KubernetesExecution
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		if err := f.Client.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: name}, &ke); err != nil {
			return err
		}
		return check(&ke)
	})
	return &ke
}

// Until waits until check returns no error.
func (f *Fleet) Until(check func() error) {
	f.Helper()
	kubebedtest.Eventually(f, func(context.Context) error { return check() })
}

// AwaitFailure waits until an execution has failed and verifies the reason.
func (f *Fleet) AwaitFailure(name string, reason v1alpha1.Reason, detail v1alpha1.Detail) *v1alpha1.KubernetesExecution {
	f.Helper()
	ke := f.AwaitPhase(name, v1alpha1.PhaseFailed)
	if ke.Status.Reason != reason || detail != "" && ke.Status.ReasonDetail != detail {
		f.Errorf(
			"execution %q failed because of %s %s, want %s %s: %s",
			name,
			ke.Status.Reason,
			ke.Status.ReasonDetail,
			reason,
			detail,
			ke.Status.Message,
		)
	}
	return ke
}

// AwaitEvent waits for an event about an execution.
func (f *Fleet) AwaitEvent(executionName, reason, eventType string) {
	f.Helper()
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := f.Client.List(ctx, &list, client.InNamespace(f.Namespace)); err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			if e.Regarding.Name != executionName {
				continue
			}
			if e.Reason == reason && e.Type == eventType {
				return nil
			}
			seen = append(seen, e.Type+" "+e.Reason)
		}
		return fmt.Errorf("no event %s %s about %s; there are %v", eventType, reason, executionName, seen)
	})
}

// ListExecutionPods lists the Pods of an execution.
func (f *Fleet) ListExecutionPods(executionName string) []corev1.Pod {
	f.Helper()
	var list corev1.PodList
	err := f.Client.List(f.Context(), &list, client.InNamespace(f.Namespace), client.MatchingLabels{v1alpha1.LabelExecution: executionName})
	if err != nil {
		f.Fatal(err)
	}
	return list.Items
}
