package quarantine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

func at() metav1.MicroTime {
	return metav1.NewMicroTime(time.Date(2026, 5, 4, 12, 0, 0, 123456000, time.UTC))
}

func marked(text string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{v1alpha1.AnnotationOwned: text}}}
}

func fullMark() ownedMark {
	return ownedMark{
		UID: "u", Foreign: true, Undone: []string{"worse:NoExecute"},
		Owned: v1alpha1.Owned{Session: "k3f9c2aa", Cordon: true, AppliedAt: at(), Taints: []corev1.Taint{{Key: "sick", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}},
		Fault: sessionFault{Source: "agent", Check: "xid-check", Entity: "GPU/3", Codes: []string{"XID-79"}, Fatal: true, Message: "off the bus", Action: v1alpha1.ActionRestartVM, Since: at()},
	}
}

func TestMarkRoundTrip(t *testing.T) {
	want := fullMark()
	node := marked("")
	setJSONAnnotation(node, v1alpha1.AnnotationOwned, want)
	got, err := readOwnedMark(node)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	const text = `{"uid":"u","session":"k3f9c2aa","cordon":true,"taints":[{"key":"sick","value":"gpu","effect":"NoSchedule"}],"appliedAt":"2026-05-04T12:00:00.123456Z",` +
		`"foreign":true,"undone":["worse:NoExecute"],"fault":{"source":"agent","check":"xid-check","entity":"GPU/3","codes":["XID-79"],"fatal":true,` +
		`"message":"off the bus","action":"RESTART_VM","since":"2026-05-04T12:00:00.123456Z"}}`
	if diff := cmp.Diff(text, node.Annotations[v1alpha1.AnnotationOwned]); diff != "" {
		t.Errorf("the annotation is read by other versions, too (-want +got)\n%s", diff)
	}
	owned, ours := OwnedOf(node)
	if diff := cmp.Diff(want.Owned, owned); diff != "" || !ours {
		t.Errorf("owned %v, -want +got\n%s", ours, diff)
	}
}

func TestReadMark(t *testing.T) {
	const good = `{"uid":"u","session":"s","cordon":true,"appliedAt":"2026-05-04T12:00:00.123456Z"}`
	cases := map[string]struct {
		reason, text string
		want         bool
		wantErr      bool
	}{
		"Good":         {reason: "the least that a mark has", text: good, want: true},
		"NewerVersion": {reason: "fields that a later version adds do no harm", text: strings.Replace(good, "{", `{"colour":{"of":"it"},`, 1), want: true},
		"OtherNode":    {reason: "copied from another node", text: strings.Replace(good, `"u"`, `"v"`, 1), wantErr: true},
		"NoSession":    {reason: "it could not be told of", text: strings.Replace(good, `"s"`, `""`, 1), wantErr: true},
		"LongSession":  {reason: "none of ours is so long", text: strings.Replace(good, `"s"`, `"`+strings.Repeat("s", 65)+`"`, 1), wantErr: true},
		"NoTime":       {reason: "ours have one", text: `{"uid":"u","session":"s","cordon":true}`, wantErr: true},
		"OddTaint":     {reason: "a taint without a key", text: strings.Replace(good, `"appliedAt"`, `"taints":[{"effect":"NoExecute"}],"appliedAt"`, 1), wantErr: true},
		"Empty":        {reason: "an annotation without a value", text: "", wantErr: true},
		"Word":         {reason: "a person's note", text: "yes", wantErr: true},
		"List":         {reason: "JSON of another shape", text: "[]", wantErr: true},
		"Types":        {reason: "fields of other types", text: strings.Replace(good, "true", `"true"`, 1), wantErr: true},
		"Cut":          {reason: "half of it", text: good[:len(good)-5], wantErr: true},
		"Huge":         {reason: "more than we ever write", text: strings.Repeat(" ", maxAnnotation) + good, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := readOwnedMark(marked(tc.text))
			if (m != nil) != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("%s: got %+v, err %v", tc.reason, m, err)
			}
		})
	}
	if m, err := readOwnedMark(&corev1.Node{}); m != nil || err != nil {
		t.Errorf("a node without annotations: %+v, err %v", m, err)
	}
}

// TestMarkWithoutItsFault verifies that the fault of any edited annotation matches the
// schema of the status.
func TestMarkWithoutItsFault(t *testing.T) {
	unknown := v1alpha1.Fault{Source: "fleetloop", Check: "unknown", DetectedAt: at()}
	cases := map[string]struct {
		reason string
		change func(o *sessionFault)
		want   v1alpha1.Fault
	}{
		"None":    {"it was taken out", func(o *sessionFault) { *o = sessionFault{} }, unknown},
		"NoCheck": {"a part of it was", func(o *sessionFault) { o.Check = "" }, unknown},
		"Long":    {"it was written by hand", func(o *sessionFault) { o.Source = strings.Repeat("é", 129) }, unknown},
		"Codes":   {"there are more than a fault has", func(o *sessionFault) { o.Codes = make([]string, 17) }, unknown},
		"Code":    {"one is longer than one is", func(o *sessionFault) { o.Codes = []string{strings.Repeat("c", 65)} }, unknown},
		"NoTime":  {"it has begun when the node was taken, or before", func(o *sessionFault) { *o = sessionFault{Source: "a", Check: "b"} }, v1alpha1.Fault{Source: "a", Check: "b", DetectedAt: at()}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, node := fullMark(), marked("")
			tc.change(&m.Fault)
			setJSONAnnotation(node, v1alpha1.AnnotationOwned, m)
			got, err := readOwnedMark(node)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Fault.toFault()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

// TestLargestMark verifies that the mark of the largest fault fits on a node and can be
// read again.
func TestLargestMark(t *testing.T) {
	f := v1alpha1.Fault{Source: strings.Repeat("é", 128), Check: strings.Repeat("é", 128), Entity: strings.Repeat("é", 256), Message: strings.Repeat("é", 1024), RecommendedAction: v1alpha1.RecommendedAction(strings.Repeat("é", 64)), DetectedAt: at()}
	for range 16 {
		f.ErrorCodes = append(f.ErrorCodes, strings.Repeat("<", 64))
	}
	m := ownedMark{UID: "u", Owned: v1alpha1.Owned{Session: "s", AppliedAt: at()}, Fault: newSessionFault(f)}
	for range 16 {
		m.Taints = append(m.Taints, corev1.Taint{Key: strings.Repeat("k", 317), Value: strings.Repeat("v", 63), Effect: corev1.TaintEffectPreferNoSchedule})
		m.Undone = append(m.Undone, strings.Repeat("k", 317)+":PreferNoSchedule")
	}
	node := marked("")
	setJSONAnnotation(node, v1alpha1.AnnotationOwned, m)
	if size := len(node.Annotations[v1alpha1.AnnotationOwned]); size > maxAnnotation/2 {
		t.Errorf("the mark has %d bytes", size)
	}
	got, err := readOwnedMark(node)
	if diff := cmp.Diff(&m, got); diff != "" || err != nil {
		t.Errorf("err %v, -want +got\n%s", err, diff)
	}
	o := overrideRecord{UID: "u", Session: "s", At: at()}
	for range maxFaults {
		o.Faults = append(o.Faults, f.Source+"/"+f.Check+"/"+f.Entity)
	}
	setJSONAnnotation(node, v1alpha1.AnnotationOverridden, o.coveringAllFaultsIfTooLarge())
	if size := len(node.Annotations[v1alpha1.AnnotationOverridden]); size > maxAnnotation/2 {
		t.Errorf("the override has %d bytes", size)
	}
	if read, err := readOverride(node); err != nil || !read.coversFault(o.Faults[0], at().Time) {
		t.Errorf("the override does not cover what it is about: %+v, err %v", read, err)
	}
}

func TestHolder(t *testing.T) {
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate}
		if fields != "" {
			e.FieldsV1 = metav1.NewFieldsV1(fields)
		}
		return e
	}
	const flag = `{"f:spec":{"f:unschedulable":{}}}`
	cases := map[string]struct {
		reason  string
		entries []metav1.ManagedFieldsEntry
		want    cordonOwner
	}{
		"None":    {reason: "stripped, or never there", want: nobodyKnown},
		"Us":      {reason: "as our write leaves it", entries: []metav1.ManagedFieldsEntry{entry("kubelet", "", `{"f:spec":{"f:taints":{}}}`), entry(v1alpha1.FieldManager, "", flag)}, want: us},
		"Them":    {reason: "a person", entries: []metav1.ManagedFieldsEntry{entry(v1alpha1.FieldManager, "", `{"f:metadata":{}}`), entry("kubectl-cordon", "", flag)}, want: others},
		"Both":    {reason: "who holds it with us counts", entries: []metav1.ManagedFieldsEntry{entry(v1alpha1.FieldManager, "", flag), entry("gitops", "", flag)}, want: others},
		"Ancient": {reason: "the API server's bag of old changes is nobody", entries: []metav1.ManagedFieldsEntry{entry("ancient-changes", "", flag)}, want: nobodyKnown},
		"Status":  {reason: "the status has no such flag", entries: []metav1.ManagedFieldsEntry{entry("kubelet", "status", flag)}, want: nobodyKnown},
		"Odd":     {reason: "what cannot be read says nothing", entries: []metav1.ManagedFieldsEntry{entry("x", "", "{"), entry("y", "", "")}, want: nobodyKnown},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := cordonOwnerFromManagedFields(&corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.entries}})
			if got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// FuzzAnnotations verifies that a step with any text in the annotations does not fail,
// and removes only what the text records for this node.
func FuzzAnnotations(f *testing.F) {
	full, err := json.Marshal(fullMark())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(full), `{"uid":"u","session":"k3f9c2aa","appliedAt":"2026-05-04T12:00:00Z","cordon":true}`, `{"uid":"u","session":"k3f9c2aa","at":"2026-05-04T12:00:00.0Z","faults":["a/b/c"]}`)
	f.Add(`{"uid":"u","session":"s","appliedAt":"2026-05-04T12:00:00.000000Z","taints":[{"key":"theirs","effect":"NoSchedule"}]}`, "", "hands off")
	f.Add("{}", "[]", "null")
	f.Add(`{"uid":"v","session":"s","appliedAt":"2026-05-04T12:00:00Z"}`, `"`, `{"all":true,"uid":"u","session":"s","at":"9999-05-04T12:00:00Z"}`)
	f.Fuzz(func(t *testing.T, owned, released, overridden string) {
		theirs := corev1.Taint{Key: "theirs", Value: "x", Effect: corev1.TaintEffectNoSchedule}
		node := marked(owned)
		node.Annotations[v1alpha1.AnnotationReleased] = released
		node.Annotations[v1alpha1.AnnotationOverridden] = overridden
		node.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{theirs}}
		node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-cordon", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`)}}
		m, err := readOwnedMark(node)
		if err != nil && m != nil {
			t.Fatal("a mark with an error")
		}
		if m != nil {
			again := marked("")
			setJSONAnnotation(again, v1alpha1.AnnotationOwned, m)
			if same, err := readOwnedMark(again); err != nil || !cmp.Equal(m.Owned, same.Owned) {
				t.Fatalf("written and read again, %+v became %+v, err %v", m, same, err)
			}
		}
		q := New(Config{}, nil)
		st := &v1alpha1.NodeFaultStatus{}
		now := at().Add(time.Hour)
		for range 8 {
			s, err := q.Step(StepInput{Now: now, Node: node, Status: st})
			if err != nil {
				t.Fatal(err)
			}
			if s.Node != nil {
				node = s.Node
			}
			s.Settle(st)
			now = now.Add(time.Hour)
		}
		ours := m != nil && hasTaint(m.Taints, theirs)
		if !node.Spec.Unschedulable || !ours && !hasTaint(node.Spec.Taints, theirs) {
			t.Fatalf("what is theirs was taken off: %+v", node.Spec)
		}
		if _, is := OwnedOf(node); is {
			t.Fatalf("the node is healthy and still ours: %s", node.Annotations[v1alpha1.AnnotationOwned])
		}
	})
}
