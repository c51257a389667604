package janitor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

const (
	waiting   = "Unknown/Waiting"
	sent      = "True/Succeeded"
	succeeded = "True/Succeeded"
	failed    = "False/Failed"
	timeout   = "False/Timeout"
)

// TestRebootIsProven verifies that a reboot ends exactly when the node is Ready with a
// new boot ID.
func TestRebootIsProven(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	node := w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	w.want(o, sent, waiting, "not rebooted yet")
	_, status := specAndStatus(o)
	want := v1alpha1.NodeActionStatus{
		StartTime: toMetaTimeSeconds(w.now), NodeUID: node.UID, PreviousBootID: "boot-1", Provider: "machinery", ProviderRequestID: "request of " + o.GetName(),
		Deadline: toMetaTimeSeconds(w.now.Add(30 * time.Minute)), Conditions: status.Conditions, Message: status.Message,
	}
	if diff := cmp.Diff(&want, status); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	w.report("boot-1", corev1.ConditionUnknown)
	w.want(w.look(o), sent, waiting, "not rebooted yet")
	w.report("boot-1", corev1.ConditionTrue)
	w.now = w.now.Add(20 * time.Minute)
	w.want(w.look(o), sent, waiting, "not rebooted yet")
	w.report("boot-2", corev1.ConditionFalse)
	w.want(w.look(o), sent, waiting, "not Ready yet")
	w.report("boot-2", corev1.ConditionTrue)
	w.want(w.look(o), sent, succeeded, "new boot ID")
	w.report("boot-3", corev1.ConditionFalse)
	w.now = w.now.Add(time.Hour)
	w.want(w.look(o), sent, succeeded, "new boot ID") // permanently
	if n := w.provider.asked[o.GetUID()]; n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
}

// TestRefused verifies that a rejected action fails at once and permanently.
func TestRefused(t *testing.T) {
	t.Parallel()
	labelled := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{key: value} }
	}
	cases := map[string]struct {
		reason  string
		kind    string
		node    func(*corev1.Node)
		none    bool
		cfg     func(*Config)
		message string // empty means that it is executed
	}{
		"NoNode":         {"it may have been mistyped", v1alpha1.KindReboot, nil, true, nil, "not found"},
		"NoNodeEnd":      {"nothing was terminated", v1alpha1.KindTerminate, nil, true, nil, "not found"},
		"OptedOut":       {"a person wants it left alone", v1alpha1.KindReboot, labelled(faults.LabelOptOut, faults.OptedOut), false, nil, "fleetloop.io/node-faults=disabled"},
		"OptedIn":        {"another value says nothing", v1alpha1.KindReboot, labelled(faults.LabelOptOut, "enabled"), false, nil, ""},
		"ControlPlane":   {"the cluster would lose it", v1alpha1.KindTerminate, labelled("node-role.kubernetes.io/control-plane", ""), false, nil, "control-plane"},
		"ControlPlaneOK": {"unless that is wanted", v1alpha1.KindReboot, labelled("node-role.kubernetes.io/control-plane", ""), false, func(c *Config) { c.ControlPlane = true }, ""},
		"Excluded":       {"by a label and its value", v1alpha1.KindReboot, labelled("pool", "storage"), false, func(c *Config) { c.Excluded = []string{"pool=storage"} }, "pool=storage"},
		"OtherValue":     {"which is another", v1alpha1.KindReboot, labelled("pool", "gpu"), false, func(c *Config) { c.Excluded = []string{"pool=storage"} }, ""},
		"ExcludedKey":    {"by a label alone", v1alpha1.KindReboot, labelled("pool", "gpu"), false, func(c *Config) { c.Excluded = []string{"pool"} }, "label pool"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			if tc.cfg != nil {
				tc.cfg(&w.cfg)
			}
			if !tc.none {
				w.addNode(tc.node)
			}
			o := w.look(w.ask(tc.kind, "a", false))
			if tc.message == "" {
				w.want(o, sent, waiting, "")
				return
			}
			w.want(o, failed, failed, tc.message)
			if len(w.provider.asked) > 0 {
				t.Errorf("%s: and the provider was asked", tc.reason)
			}
		})
	}
}

// TestBootIDIsWaitedFor verifies that a reboot waits for the boot ID of a new node, for a
// limited time.
func TestBootIDIsWaitedFor(t *testing.T) {
	t.Parallel()
	t.Run("Comes", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.addNode(nil)
		w.report("", corev1.ConditionFalse)
		o := w.ask(v1alpha1.KindReboot, "a", false)
		until := w.now.Add(5 * time.Minute).UTC().Format(time.TimeOnly)
		for range 3 {
			w.want(w.look(o), "False/Waiting", waiting, "until "+until+"; it is needed to verify the reboot")
			w.now = w.now.Add(time.Minute)
		}
		w.want(w.look(w.ask(v1alpha1.KindReboot, "b", false)), "", "", "waiting for RebootNode")
		if len(w.provider.asked) > 0 {
			t.Fatal("the provider was asked")
		}
		w.report("boot-7", corev1.ConditionTrue)
		w.want(w.look(o), sent, waiting, "not rebooted yet")
		if _, status := specAndStatus(o); status.PreviousBootID != "boot-7" {
			t.Errorf("the boot that is to end is %q", status.PreviousBootID)
		}
		w.report("boot-8", corev1.ConditionTrue)
		w.want(w.look(o), sent, succeeded, "new boot ID")
	})
	t.Run("Never", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.addNode(nil)
		w.report("", corev1.ConditionTrue)
		o := w.look(w.ask(v1alpha1.KindReboot, "a", true))
		w.now = w.now.Add(5*time.Minute - time.Second)
		w.want(w.look(o), "False/Waiting", waiting, "waiting for the boot ID")
		w.now = w.now.Add(time.Second)
		w.want(w.look(o), failed, failed, "has reported no boot ID for 5m0s, so that its reboot could not be verified")
		w.report("boot-1", corev1.ConditionTrue)
		w.want(w.look(o), failed, failed, "reported no boot ID") // permanently
		if len(w.provider.asked) > 0 {
			t.Error("the provider was asked")
		}
	})
	t.Run("Terminate", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.addNode(nil)
		w.report("", corev1.ConditionFalse)
		w.want(w.look(w.ask(v1alpha1.KindTerminate, "a", false)), sent, waiting, "") // a termination needs no boot ID
	})
}

// TestOneAtATime verifies that the actions on a node run one at a time, the oldest first,
// regardless of their kinds.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.addNode(nil)
	first := w.ask(v1alpha1.KindReboot, "z", false)
	kubebedtest.Eventually(t, nextSecond(first)) // creation times have a resolution of one second
	second, third := w.ask(v1alpha1.KindTerminate, "m", false), w.ask(v1alpha1.KindReboot, "a", false)
	w.want(w.look(third), "", "", "waiting for RebootNode")
	w.want(w.look(second), "", "", "waiting for RebootNode")
	w.want(w.look(first), sent, waiting, "")
	w.want(w.look(third), "", "", `waiting for RebootNode "`+first.GetName()+`"`)
	w.report("boot-2", corev1.ConditionTrue)
	w.want(w.look(first), sent, succeeded, "")
	next, last := second, third // order within one second
	if isOlder(third, second) {
		next, last = third, second
	}
	w.want(w.look(last), "", "", next.GetName())
	w.want(w.look(next), sent, waiting, "")
	if err := w.client.Delete(t.Context(), next); err != nil { // by a person
		t.Fatal(err)
	}
	w.want(w.look(last), sent, waiting, "")
	if diff := cmp.Diff([]string{first.GetName(), next.GetName(), last.GetName()}, w.provider.order); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func nextSecond(o client.Object) func(context.Context) error {
	return func(context.Context) error {
		if time.Now().Unix() <= o.GetCreationTimestamp().Unix() {
			return errors.New("still the same second")
		}
		return nil
	}
}

// TestTimeout verifies that an action fails at its deadline, and is not executed later.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		answer error
		sent   string
	}{
		"Sent":    {"the machine never came back", nil, sent},
		"NotSent": {"the provider never took it", errors.New("no route to the BMC"), timeout},
		"Waiting": {"a person never did it", &WaitingError{Message: "a person has to"}, timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.addNode(nil)
			w.provider.answer = func(Request) error { return tc.answer }
			o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
			if tc.answer != nil {
				w.want(o, "Unknown/Sending", waiting, tc.answer.Error())
			}
			w.now = w.now.Add(30*time.Minute - time.Second)
			if _, status := specAndStatus(w.look(o)); status.CompletionTime != nil {
				t.Errorf("%s: it was given up too early: %s", tc.reason, status.Message)
			}
			w.now = w.now.Add(time.Second)
			w.provider.answer = func(Request) error { return nil }
			w.want(w.look(o), tc.sent, timeout, "did not finish before its deadline")
			if w.provider.withdrawn[o.GetUID()] != 1 {
				t.Errorf("%s: it may happen later", tc.reason)
			}
			w.report("boot-2", corev1.ConditionTrue)
			w.want(w.look(o), tc.sent, timeout, "did not finish before its deadline") // permanently
			if tc.answer != nil && len(w.provider.asked) > 0 {
				t.Errorf("%s: it was asked for after all", tc.reason)
			}
		})
	}
}

// TestOptedOutWhileWaiting verifies that an action that waits at the provider ends without being sent
// once its node is opted out.
func TestOptedOutWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	node := w.addNode(nil)
	w.provider.answer = func(Request) error { return &WaitingError{Message: "a person has to"} }
	o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	w.want(o, "Unknown/Sending", waiting, "a person has to")
	optOut := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, faults.LabelOptOut, faults.OptedOut)
	if err := w.client.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, optOut)); err != nil {
		t.Fatal(err)
	}
	w.provider.answer = func(Request) error { return nil }
	w.want(w.look(o), failed, failed, "forbids actions on it")
	if len(w.provider.asked) > 0 || w.provider.withdrawn[o.GetUID()] != 1 {
		t.Errorf("it was sent %d times and withdrawn %d times", len(w.provider.asked), w.provider.withdrawn[o.GetUID()])
	}
}

// TestLateNews verifies that a reboot that is observed after the deadline succeeds.
func TestLateNews(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	w.report("boot-2", corev1.ConditionTrue)
	w.now = w.now.Add(time.Hour)
	w.want(w.look(o), sent, succeeded, "")
}

// TestProviderFails verifies that a permanent error or failure of the provider ends the
// action.
func TestProviderFails(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.addNode(nil)
	w.provider.answer = func(Request) error { return Permanent(errors.New("no such machine")) }
	w.want(w.look(w.ask(v1alpha1.KindReboot, "a", false)), failed, failed, "no such machine")
	w.provider.answer = func(Request) error { return nil }
	b := w.look(w.ask(v1alpha1.KindReboot, "b", false))
	w.want(b, sent, waiting, "")
	w.provider.progress = Progress{State: StateFailed, Message: "the power supply is dead"}
	w.want(w.look(b), sent, failed, "the power supply is dead")
}

// TestPodsAreLeft verifies that a reboot waits for the pods on the node, unless it is
// forced.
func TestPodsAreLeft(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.addNode(nil)
	ns := kubebedtest.Namespace(t)
	pod := func(name string, owner *metav1.OwnerReference, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: corev1.PodSpec{
			NodeName: w.node(), TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}
		if owner != nil {
			p.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		if err := w.client.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		created := p.DeepCopy()
		p.Status.Phase = phase
		// A patch, because the controllers of the cluster may change the pod at the same time.
		if err := w.client.Status().Patch(t.Context(), p, client.MergeFrom(created)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	// The owner exists, because the garbage collector deletes a pod whose owner does not.
	labels := map[string]string{"app": "agent"}
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: ns}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}}
	if err := w.client.Create(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	pod("agent", metav1.NewControllerRef(agents, appsv1.SchemeGroupVersion.WithKind("DaemonSet")), corev1.PodRunning)
	pod("done", nil, corev1.PodSucceeded)
	web := pod("web", nil, corev1.PodRunning)
	a := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	w.want(a, "False/Waiting", waiting, "number of pods left on the node: 1, for example "+ns+"/web")
	if len(w.provider.asked) > 0 {
		t.Fatal("the provider was asked")
	}
	w.report("boot-2", corev1.ConditionTrue) // an unrelated reboot proves nothing
	if err := w.client.Delete(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	w.want(w.look(a), sent, waiting, "not rebooted yet")
	w.report("boot-3", corev1.ConditionTrue)
	w.want(w.look(a), sent, succeeded, "")
	pod("web2", nil, corev1.PodRunning)
	w.want(w.look(w.ask(v1alpha1.KindReboot, "b", true)), sent, waiting, "")
}

// TestTerminate verifies that a termination ends when the machine and the Node are gone,
// and deletes no other node of that name.
func TestTerminate(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindTerminate, "a", false))
	w.want(o, sent, waiting, "")
	w.report("boot-1", corev1.ConditionUnknown)
	w.want(w.look(o), sent, waiting, "")
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.node()}, &corev1.Node{}); err != nil {
		t.Fatalf("the machine is there, and its Node is not: %v", err)
	}
	w.provider.progress = Progress{State: StateDone}
	w.look(o)
	w.want(w.look(o), sent, succeeded, "are deleted")
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.node()}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node is still there: %v", err)
	}
}

// TestTerminateReplaced covers a node that is deleted and replaced before its machine is
// gone, as with Cluster API.
func TestTerminateReplaced(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	n := w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindTerminate, "a", false))
	if err := w.client.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.want(w.look(o), sent, waiting, "") // the machine still exists
	another := w.addNode(nil)
	w.provider.progress = Progress{State: StateDone}
	w.want(w.look(o), sent, succeeded, "")
	var now corev1.Node
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.node()}, &now); err != nil || now.UID != another.UID {
		t.Errorf("the other node is gone: %v", err)
	}
}

// TestNodeGoes verifies that a reboot fails if the node is deleted meanwhile.
func TestNodeGoes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	n := w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	if err := w.client.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.want(w.look(o), sent, failed, "was deleted")
}

// TestNodeOfTheSameName verifies that an action on a node is not executed on a new node
// of the same name.
func TestNodeOfTheSameName(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{v1alpha1.KindReboot, v1alpha1.KindTerminate} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			old := w.addNode(nil)
			o := w.ask(kind, "a", true)
			kubebedtest.Eventually(t, nextSecond(o)) // creation times have a resolution of one second
			if err := w.client.Delete(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			w.addNode(nil)
			w.want(w.look(o), failed, failed, "created after this request")
			if len(w.provider.asked) > 0 {
				t.Error("and the provider was asked")
			}
		})
	}
}

// TestTTL verifies that finished objects are kept until their TTL.
func TestTTL(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	w.report("boot-2", corev1.ConditionTrue)
	w.look(o)
	w.now = w.now.Add(24*time.Hour - time.Second)
	if w.look(o) == nil {
		t.Error("it was deleted too early")
	}
	w.now = w.now.Add(time.Second)
	if w.look(o) != nil {
		t.Error("it is still there")
	}
}

// TestSpecIsFixed verifies that the spec of an action is immutable.
func TestSpecIsFixed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	o, is := w.ask(v1alpha1.KindReboot, "a", false).(*v1alpha1.RebootNode)
	if !is {
		t.Fatal("that is no RebootNode")
	}
	o.Spec.NodeName = "another"
	if err := w.client.Update(t.Context(), o); !apierrors.IsInvalid(err) {
		t.Errorf("another node: %v", err)
	}
}
