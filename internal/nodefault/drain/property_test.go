package drain

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// TestWhateverHappens tests drains with crashes between a step and its write, stale
// lists, changing budgets and rules, and slow pods. No pod is evicted before the start of
// the drain is stored, each action is recorded once and in order, and the drain ends
// exactly when it is done.
func TestWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"step": w.step, "end": w.end, "arrive": w.arrive, "budget": w.budget, "wait": w.wait, "rules": w.rules, "restart": w.restart,
		})
		w.finish(t)
	})
}

// A world holds a node, its pods in the API server, and the stored status.
type world struct {
	api    *fakeAPI
	client kubernetes.Interface
	d      *Drainer
	node   *corev1.Node
	stored *v1alpha1.NodeFaultStatus
	now    time.Time
	made   int // number of created pods
}

func newWorld(t *rapid.T) *world {
	w := &world{api: &fakeAPI{pods: map[string]*corev1.Pod{}}, node: &corev1.Node{}, now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
	w.node.Name, w.node.UID = "n", "uid-of-n"
	w.stored = &v1alpha1.NodeFaultStatus{NodeUID: w.node.UID, Session: "s", DesiredActions: &v1alpha1.DesiredActions{Drain: true}}
	for range rapid.IntRange(0, 4).Draw(t, "pods") {
		w.arrive(t)
	}
	w.api.remember()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: w.api, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	w.client = client
	w.restart(t)
	return w
}

func (w *world) restart(*rapid.T) { w.d = New(Config{Deadline: 5 * time.Minute}, w.client, nil) }

// step makes a step and writes its status, or crashes before the write.
func (w *world) step(t *rapid.T) {
	w.api.lag(rapid.Bool().Draw(t, "lists lag"))
	w.try(t, rapid.Bool().Draw(t, "written"))
}

func (w *world) try(t *rapid.T, written bool) time.Duration {
	ran := w.stored.Drain != nil && w.stored.Drain.State == v1alpha1.DrainRunning
	evictions, left := w.api.evictions(), w.api.left()
	st := w.stored.DeepCopy()
	after, err := w.d.Step(t.Context(), w.node, st, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if !ran && w.api.evictions() > evictions {
		t.Fatal("a pod goes before it is written that the drain runs")
	}
	if st.Drain != nil && (w.stored.Drain == nil || st.Drain.State != w.stored.Drain.State) {
		switch late := !w.now.Before(st.Drain.Deadline.Time); st.Drain.State {
		case v1alpha1.DrainCompleted:
			if left > 0 {
				t.Fatalf("it is completed with %d pods left", left)
			}
		case v1alpha1.DrainFailed:
			if left == 0 || !late {
				t.Fatalf("it fails with %d pods left, at %s of %s", left, w.now, st.Drain.Deadline)
			}
		case v1alpha1.DrainCancelled:
			if w.stored.DesiredActions.Drain {
				t.Fatal("it is cancelled although it is asked for")
			}
		case v1alpha1.DrainRunning:
			if after != 0 {
				t.Fatal("that it begins is to be written before anything else")
			}
		}
	}
	if isCompletedOrFailed(w.stored.Drain) && st.Drain.State != w.stored.Drain.State {
		t.Fatal("a drain that was over is not any more")
	}
	if written {
		w.stored = st
		w.check(t)
	}
	return after
}

// check verifies the records.
func (w *world) check(t *rapid.T) {
	var told []string
	for _, r := range w.stored.History {
		told = append(told, r.Action)
	}
	for i, action := range told {
		if slices.Contains(told[:i], action) {
			t.Fatalf("told twice: %v", told)
		}
	}
	ends := slices.Contains(told, changeevent.ActionDrainCompleted) || slices.Contains(told, changeevent.ActionDrainFailed)
	if ends != isCompletedOrFailed(w.stored.Drain) {
		t.Fatalf("told %v, and it is %+v", told, w.stored.Drain)
	}
	if i := slices.Index(told, changeevent.ActionDrainStarted); i > 0 {
		t.Fatalf("told %v: something before the begin", told)
	}
}

// arrive adds a pod that was bound before the node was cordoned.
func (w *world) arrive(*rapid.T) {
	yes := true
	w.made++
	p := &corev1.Pod{}
	p.Namespace, p.Name = "ns", fmt.Sprintf("p%d", w.made)
	p.UID = types.UID("uid-of-" + p.Name)
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: &yes}}
	w.api.change(func(pods map[string]*corev1.Pod) { pods[p.Name] = p })
}

func (w *world) end(t *rapid.T) {
	w.api.change(func(pods map[string]*corev1.Pod) {
		maps.DeleteFunc(pods, func(_ string, p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	})
}

func (w *world) budget(t *rapid.T) { w.api.close(rapid.Bool().Draw(t, "closed")) }

func (w *world) wait(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
}

func (w *world) rules(t *rapid.T) {
	if !isCompletedOrFailed(w.stored.Drain) {
		w.stored.DesiredActions.Drain = rapid.Bool().Draw(t, "drain")
	}
}

// finish ends all failures, so that the drain must end.
func (w *world) finish(t *rapid.T) {
	w.stored.DesiredActions.Drain = true
	w.api.close(false)
	for range 100 {
		after := w.try(t, true)
		if after == Never || after == failedDelay && w.stored.Drain.State == v1alpha1.DrainFailed {
			if !isCompletedOrFailed(w.stored.Drain) {
				t.Fatalf("nobody looks again, and it is %+v", w.stored.Drain)
			}
			return
		}
		w.now = w.now.Add(after)
		w.end(t)
	}
	t.Fatalf("it comes to no end: %+v", w.stored.Drain)
}

// A fakeAPI implements the parts of an API server that a drain uses.
type fakeAPI struct {
	mu     sync.Mutex
	pods   map[string]*corev1.Pod
	before map[string]*corev1.Pod // one change ago
	lags   bool                   // stale lists return before
	closed bool                   // the disruption budget allows no eviction
	went   int
}

func (a *fakeAPI) remember() {
	a.before = map[string]*corev1.Pod{}
	for name, p := range a.pods {
		a.before[name] = p.DeepCopy()
	}
}

func (a *fakeAPI) change(f func(map[string]*corev1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remember()
	f(a.pods)
}

func (a *fakeAPI) lag(is bool)    { a.mu.Lock(); a.lags = is; a.mu.Unlock() }
func (a *fakeAPI) close(is bool)  { a.mu.Lock(); a.closed = is; a.mu.Unlock() }
func (a *fakeAPI) evictions() int { a.mu.Lock(); defer a.mu.Unlock(); return a.went }
func (a *fakeAPI) left() int      { a.mu.Lock(); defer a.mu.Unlock(); return len(a.pods) }

// RoundTrip responds to a request.
func (a *fakeAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case req.Method == http.MethodGet && parts[len(parts)-1] == "pods":
		pods := a.pods
		if a.lags && req.URL.Query().Get("resourceVersion") == "0" {
			pods = a.before
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, name := range slices.Sorted(maps.Keys(pods)) {
			list.Items = append(list.Items, *pods[name])
		}
		return reply(req, http.StatusOK, list)
	case req.Method == http.MethodGet:
		return reply(req, http.StatusOK, policyv1.PodDisruptionBudgetList{TypeMeta: metav1.TypeMeta{Kind: "PodDisruptionBudgetList", APIVersion: "policy/v1"}})
	case parts[len(parts)-1] != "eviction":
		return nil, fmt.Errorf("a drain asks for %s %s", req.Method, req.URL)
	}
	return a.evict(req, parts[len(parts)-2])
}

func (a *fakeAPI) evict(req *http.Request, name string) (*http.Response, error) {
	var e policyv1.Eviction
	if err := json.NewDecoder(req.Body).Decode(&e); err != nil {
		return nil, err
	}
	p := a.pods[name]
	switch {
	case e.DeleteOptions == nil || e.DeleteOptions.Preconditions == nil || e.DeleteOptions.GracePeriodSeconds != nil:
		return nil, fmt.Errorf("an eviction without its conditions, or with a time to end: %+v", e)
	case p == nil:
		return refusal(req, http.StatusNotFound, metav1.StatusReasonNotFound)
	case p.UID != *e.DeleteOptions.Preconditions.UID:
		return refusal(req, http.StatusConflict, metav1.StatusReasonConflict)
	case a.closed && p.DeletionTimestamp == nil:
		return refusal(req, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: "closed"})
	}
	if p.DeletionTimestamp == nil {
		a.remember()
		now := metav1.Now()
		p.DeletionTimestamp = &now
		a.went++
	}
	return reply(req, http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

func refusal(req *http.Request, code int32, reason metav1.StatusReason, causes ...metav1.StatusCause) (*http.Response, error) {
	return reply(req, int(code), metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Details: &metav1.StatusDetails{Causes: causes},
	})
}

func reply[T any](req *http.Request, code int, body T) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return answer(req, code, string(text)), nil
}
