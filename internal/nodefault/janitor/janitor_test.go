package janitor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/nodefault/provider"
)

const (
	waiting   = "Unknown/Waiting"
	sent      = "True/Succeeded"
	succeeded = "True/Succeeded"
	failed    = "False/Failed"
	timeout   = "False/Timeout"
)

// A reboot is over when the node is Ready in another boot, and not before.
func TestRebootIsProven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	w.want(o, sent, waiting, "not rebooted yet")
	_, status := specAndStatus(o)
	want := v1alpha1.NodeActionStatus{
		StartTime: metaTime(w.now), NodeUID: node.UID, PreviousBootID: "boot-1", Provider: "machinery", ProviderRequestID: "request of " + o.GetName(),
		Deadline: metaTime(w.now.Add(30 * time.Minute)), Conditions: status.Conditions, Message: status.Message,
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
	w.want(w.look(o), sent, succeeded, "new boot ID") // for ever
	if n := w.provider.asked[o.GetUID()]; n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
}

// What will not be carried out says so at once, and for ever.
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
		message string // empty is carried out
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
			w := newWorld(t)
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

// A node that has just come may say later in which boot it is. That is waited
// for, and not for ever.
func TestBootIDIsWaitedFor(t *testing.T) {
	t.Parallel()
	t.Run("Comes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
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
		w := newWorld(t)
		w.addNode(nil)
		w.report("", corev1.ConditionTrue)
		o := w.look(w.ask(v1alpha1.KindReboot, "a", true))
		w.now = w.now.Add(5*time.Minute - time.Second)
		w.want(w.look(o), "False/Waiting", waiting, "waiting for the boot ID")
		w.now = w.now.Add(time.Second)
		w.want(w.look(o), failed, failed, "has reported no boot ID for 5m0s, so that its reboot could not be verified")
		w.report("boot-1", corev1.ConditionTrue)
		w.want(w.look(o), failed, failed, "reported no boot ID") // for ever
		if len(w.provider.asked) > 0 {
			t.Error("the provider was asked")
		}
	})
	t.Run("Terminate", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addNode(nil)
		w.report("", corev1.ConditionFalse)
		w.want(w.look(w.ask(v1alpha1.KindTerminate, "a", false)), sent, waiting, "") // its end needs no boot
	})
}

// Of the actions on a node one goes at a time, the oldest first, whatever their
// kinds are.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNode(nil)
	first := w.ask(v1alpha1.KindReboot, "z", false)
	kubebedtest.Eventually(t, nextSecond(first)) // creation times have no more
	second, third := w.ask(v1alpha1.KindTerminate, "m", false), w.ask(v1alpha1.KindReboot, "a", false)
	w.want(w.look(third), "", "", "waiting for RebootNode")
	w.want(w.look(second), "", "", "waiting for RebootNode")
	w.want(w.look(first), sent, waiting, "")
	w.want(w.look(third), "", "", `waiting for RebootNode "`+first.GetName()+`"`)
	w.report("boot-2", corev1.ConditionTrue)
	w.want(w.look(first), sent, succeeded, "")
	next, last := second, third // in whose second they were made
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

// What takes too long has failed, and is kept from happening later.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		answer error
		sent   string
	}{
		"Sent":    {"the machine never came back", nil, sent},
		"NotSent": {"the provider never took it", errors.New("no route to the BMC"), timeout},
		"Waiting": {"a person never did it", &provider.WaitingError{Message: "a person has to"}, timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addNode(nil)
			w.provider.answer = func(provider.Request) error { return tc.answer }
			o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
			if tc.answer != nil {
				w.want(o, "Unknown/Sending", waiting, tc.answer.Error())
			}
			w.now = w.now.Add(30*time.Minute - time.Second)
			if _, status := specAndStatus(w.look(o)); status.CompletionTime != nil {
				t.Errorf("%s: it was given up too early: %s", tc.reason, status.Message)
			}
			w.now = w.now.Add(time.Second)
			w.provider.answer = func(provider.Request) error { return nil }
			w.want(w.look(o), tc.sent, timeout, "did not finish before its deadline")
			if w.provider.withdrawn[o.GetUID()] != 1 {
				t.Errorf("%s: it may happen later", tc.reason)
			}
			w.report("boot-2", corev1.ConditionTrue)
			w.want(w.look(o), tc.sent, timeout, "did not finish before its deadline") // for ever
			if tc.answer != nil && len(w.provider.asked) > 0 {
				t.Errorf("%s: it was asked for after all", tc.reason)
			}
		})
	}
}

// A reboot that was noticed late has happened all the same.
func TestLateNews(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	w.report("boot-2", corev1.ConditionTrue)
	w.now = w.now.Add(time.Hour)
	w.want(w.look(o), sent, succeeded, "")
}

// A provider that refuses for good, or says that nothing will come of it, ends
// the action.
func TestProviderFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNode(nil)
	w.provider.answer = func(provider.Request) error { return provider.Permanent(errors.New("no such machine")) }
	w.want(w.look(w.ask(v1alpha1.KindReboot, "a", false)), failed, failed, "no such machine")
	w.provider.answer = func(provider.Request) error { return nil }
	b := w.look(w.ask(v1alpha1.KindReboot, "b", false))
	w.want(b, sent, waiting, "")
	w.provider.progress = provider.Progress{State: provider.StateFailed, Message: "the power supply is dead"}
	w.want(w.look(b), sent, failed, "the power supply is dead")
}

// Pods that are left on a node are not taken by surprise, unless that is wanted.
func TestPodsAreLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
		p.Status.Phase = phase
		if err := w.client.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	pod("agent", &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "d", Controller: new(true)}, corev1.PodRunning)
	pod("done", nil, corev1.PodSucceeded)
	web := pod("web", nil, corev1.PodRunning)
	a := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	w.want(a, "False/Waiting", waiting, "number of pods left on the node: 1, for example "+ns+"/web")
	if len(w.provider.asked) > 0 {
		t.Fatal("the provider was asked")
	}
	w.report("boot-2", corev1.ConditionTrue) // a reboot of its own proves nothing
	if err := w.client.Delete(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	w.want(w.look(a), sent, waiting, "not rebooted yet")
	w.report("boot-3", corev1.ConditionTrue)
	w.want(w.look(a), sent, succeeded, "")
	pod("web2", nil, corev1.PodRunning)
	w.want(w.look(w.ask(v1alpha1.KindReboot, "b", true)), sent, waiting, "")
}

// A termination is over when the machine and the Node are gone, and takes no
// other node of the name with it.
func TestTerminate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindTerminate, "a", false))
	w.want(o, sent, waiting, "")
	w.report("boot-1", corev1.ConditionUnknown)
	w.want(w.look(o), sent, waiting, "")
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.node()}, &corev1.Node{}); err != nil {
		t.Fatalf("the machine is there, and its Node is not: %v", err)
	}
	w.provider.progress = provider.Progress{State: provider.StateDone}
	w.look(o)
	w.want(w.look(o), sent, succeeded, "are deleted")
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.node()}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node is still there: %v", err)
	}
}

// The node goes first, as it does with Cluster API, and another takes its name.
func TestTerminateReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindTerminate, "a", false))
	if err := w.client.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.want(w.look(o), sent, waiting, "") // the machine is still there
	another := w.addNode(nil)
	w.provider.progress = provider.Progress{State: provider.StateDone}
	w.want(w.look(o), sent, succeeded, "")
	var now corev1.Node
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.node()}, &now); err != nil || now.UID != another.UID {
		t.Errorf("the other node is gone: %v", err)
	}
}

// A node that goes while it is to be rebooted was not rebooted.
func TestNodeGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.addNode(nil)
	o := w.look(w.ask(v1alpha1.KindReboot, "a", false))
	if err := w.client.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.want(w.look(o), sent, failed, "was deleted")
}

// What was asked of a node is not done to the next one of its name, which nobody
// has found anything wrong with.
func TestNodeOfTheSameName(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{v1alpha1.KindReboot, v1alpha1.KindTerminate} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			old := w.addNode(nil)
			o := w.ask(kind, "a", true)
			kubebedtest.Eventually(t, nextSecond(o)) // creation times have no more
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

// Objects are kept for a while after their end.
func TestTTL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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

// What is asked for does not change.
func TestSpecIsFixed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, is := w.ask(v1alpha1.KindReboot, "a", false).(*v1alpha1.RebootNode)
	if !is {
		t.Fatal("that is no RebootNode")
	}
	o.Spec.NodeName = "another"
	if err := w.client.Update(t.Context(), o); !apierrors.IsInvalid(err) {
		t.Errorf("another node: %v", err)
	}
}
