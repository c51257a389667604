package drain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// gathered returns the metrics that are not zero.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "fleetloop_node_fault_")
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			if v := m.GetGauge().GetValue() + m.GetCounter().GetValue(); v != 0 {
				values[name] = v
			}
		}
	}
	return values
}

func TestActions(t *testing.T) {
	began := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := metav1.NewTime(began)
	yes := true
	owner := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "o", Controller: &yes}}
	}
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule},
		{Key: "fault", Value: "gpu", Effect: corev1.TaintEffectNoExecute},
		{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
	}}}
	set := owner("ReplicaSet")
	cfg := Config{Namespaces: []NamespaceRule{
		{Pattern: "jobs-?", Mode: ModeWait},
		{Pattern: "patient", Mode: ModeWaitThenEvict, EvictAfter: time.Minute},
		{Pattern: "kube-*", Mode: ModeSkip},
		{Pattern: "kube-public", Mode: ModeWait},
	}}
	type want struct {
		action podAction
		by     string
	}
	for name, tc := range map[string]struct {
		reason string
		pod    corev1.Pod
		cfg    func(*Config)
		want   want
	}{
		"Plain":     {reason: "what somebody makes again is evicted", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: set}}, want: want{action: evictPod}},
		"Mirror":    {reason: "the kubelet would make it again from its file", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("Node"), Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}, want: want{action: leavePod}},
		"Succeeded": {reason: "it does not run", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: set}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, want: want{action: leavePod}},
		"Failed":    {reason: "it does not run", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, want: want{action: leavePod}},
		"Ending":    {reason: "what was told to go is not gone", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: set, DeletionTimestamp: &at}}, want: want{action: awaitEnd}},
		"Unknown":   {reason: "a pod that nobody heard of for long may run", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: set}, Status: corev1.PodStatus{Phase: corev1.PodUnknown}}, want: want{action: evictPod}},
		"DaemonSet": {
			reason: "it would be back on the same node",
			pod:    corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("DaemonSet")}, Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}},
			want:   want{action: leavePod},
		},
		"DaemonSetByTaint": {
			reason: "it tolerates each taint that matters by itself",
			pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("DaemonSet")}, Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, {Key: "fault", Value: "gpu"},
			}}},
			want: want{action: leavePod},
		},
		"DaemonSetNoSchedule": {
			reason: "such a taint stops no running pod, and the monitor that reports the recovery may be one",
			pod:    corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("DaemonSet")}, Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "fault", Value: "gpu"}}}},
			want:   want{action: leavePod},
		},
		"DaemonSetIntolerant": {
			reason: "it does not come back, as it does not tolerate the fault",
			pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("DaemonSet")}, Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists}, {Key: "fault", Value: "nic"},
			}}},
			want: want{action: evictPod},
		},
		"Bare":        {reason: "nobody makes it again", pod: corev1.Pod{}, want: want{waitFor, byBarePod}},
		"OwnedBare":   {reason: "an owner that is no controller makes nothing again", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "ConfigMap", Name: "o"}}}}, want: want{waitFor, byBarePod}},
		"BareEvicted": {reason: "who wants it", pod: corev1.Pod{}, cfg: func(c *Config) { c.BarePods = TreatEvict }, want: want{action: evictPod}},
		"BareSkipped": {reason: "who wants it", pod: corev1.Pod{}, cfg: func(c *Config) { c.BarePods = TreatSkip }, want: want{action: leavePod}},
		"Scratch": {
			reason: "most pods have such a volume, for what can be made again",
			pod:    corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: set}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}},
			want:   want{action: evictPod},
		},
		"ScratchKept": {
			reason: "who wants it",
			pod:    corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: set}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}},
			cfg:    func(c *Config) { c.EmptyDir = TreatWait },
			want:   want{waitFor, byEmptyDir},
		},
		"Wait":         {reason: "the namespace is waited for", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs-1", OwnerReferences: set}}, want: want{waitFor, byWaiting}},
		"WaitNotMore":  {reason: "a pattern is of the whole name", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs-12", OwnerReferences: set}}, want: want{action: evictPod}},
		"WaitEnding":   {reason: "whoever told it to go", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs-1", DeletionTimestamp: &at}}, want: want{action: awaitEnd}},
		"Patient":      {reason: "its time is not over", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "patient", OwnerReferences: set}}, want: want{waitFor, byWaiting}},
		"Skip":         {reason: "the namespace is left alone, and pods on their way with it", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", DeletionTimestamp: &at}}, want: want{action: leavePod}},
		"FirstPattern": {reason: "the first that matches counts", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", OwnerReferences: set}}, want: want{action: leavePod}},
	} {
		t.Run(name, func(t *testing.T) {
			c := cfg
			if tc.cfg != nil {
				tc.cfg(&c)
			}
			d := New(c, nil, nil)
			plan := d.cfg.planPod(node, at, &tc.pod, began.Add(59*time.Second))
			if diff := cmp.Diff(tc.want, want{plan.action, plan.blockedBy}, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestTheLeastImportantGoesFirst verifies the order of evictions: by priority, and
// rejected pods last.
func TestTheLeastImportantGoesFirst(t *testing.T) {
	d := New(Config{BarePods: TreatEvict, EvictionsPerSecond: 1000, MaxPodsInFlight: 1000}, nil, nil)
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	pod := func(name string, priority int32) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		p.Spec.Priority = &priority
		return p
	}
	pods := []corev1.Pod{pod("critical", 2000), pod("b", 0), pod("a", 0), pod("cheap", -5)}
	s := &v1alpha1.DrainStatus{StartedAt: metav1.NewTime(at)}
	var got []string
	requests := podRequests{"a": requestState{refusals: 2}, "cheap": requestState{refusals: 1}}
	for _, request := range d.evictor.takeDueRequestsWithinRate(s, d.cfg.selectLeavingPodsByPriority(&corev1.Node{}, s.StartedAt, pods, at), requests, at) {
		got = append(got, request.pod.Name)
	}
	if diff := cmp.Diff([]string{"b", "critical", "cheap", "a"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAStatusHasEightBlockers(t *testing.T) {
	d := New(Config{BarePods: TreatWait}, nil, nil)
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	st := &v1alpha1.NodeFaultStatus{Drain: &v1alpha1.DrainStatus{StartedAt: metav1.NewTime(at)}}
	var pods []corev1.Pod
	for i := range 30 {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%s-%02d", strings.Repeat("p", 250), i)}})
	}
	writeProgressToStatus(st, d.cfg.selectLeavingPodsByPriority(&corev1.Node{}, st.Drain.StartedAt, pods, at), podRequests{}, at)
	if len(st.Drain.BlockedPods) != 8 || st.Drain.Remaining != 30 {
		t.Errorf("%d of %d are named, want 8 of 30", len(st.Drain.BlockedPods), st.Drain.Remaining)
	}
	if n := len(st.Drain.Message); n > maxText {
		t.Errorf("the message has %d bytes, which the API server would refuse", n)
	}
}

func TestSettings(t *testing.T) {
	var cfg Config
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Config{}.withDefaults(), cfg); diff != "" {
		t.Errorf("the defaults of the settings are others (-want +got):\n%s", diff)
	}
	cfg = Config{}
	text := "namespaces:\n- pattern: jobs-*\n  mode: wait-then-evict\n  evict_after: 1h\n- pattern: db\n  delete_after: 20m\n  force_delete_after: 5m\n"
	if _, err := settings.Load(&cfg, settings.Source{File: "f.yaml", FileData: []byte(text)}); err != nil {
		t.Fatal(err)
	}
	want := []NamespaceRule{{Pattern: "jobs-*", Mode: ModeWaitThenEvict, EvictAfter: time.Hour}, {Pattern: "db", Mode: ModeEvict, DeleteAfter: 20 * time.Minute, ForceDeleteAfter: 5 * time.Minute}}
	if diff := cmp.Diff(want, cfg.Namespaces); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"BadPattern": "namespaces:\n- pattern: 'a['\n",
		"NoPattern":  "namespaces:\n- mode: wait\n",
		"BadMode":    "namespaces:\n- pattern: a\n  mode: kill\n",
		"BadBare":    "bare_pods: kill\n",
	} {
		if _, err := settings.Load(&Config{}, settings.Source{File: "f.yaml", FileData: []byte(text)}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestLeaves verifies whether drained nodes may have pods left.
func TestLeaves(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		cfg    Config
		want   bool
	}{
		"Default":   {"all go, or are waited for", Config{}.withDefaults(), false},
		"BarePods":  {"those that nothing would make again stay", Config{BarePods: TreatSkip}, true},
		"EmptyDir":  {"those with something on the disk stay", Config{EmptyDir: TreatSkip}, true},
		"Namespace": {"those of a namespace stay", Config{Namespaces: []NamespaceRule{{Pattern: "a", Mode: ModeWait}, {Pattern: "b", Mode: ModeSkip}}}, true},
		"Waits":     {"they are waited for", Config{BarePods: TreatWait, Namespaces: []NamespaceRule{{Pattern: "a", Mode: ModeWait}}}, false},
	} {
		if got := tc.cfg.MayLeavePods(); got != tc.want {
			t.Errorf("%s: %s: %t", name, tc.reason, got)
		}
	}
}
