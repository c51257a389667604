package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

func TestWhichEventsAreListed(t *testing.T) {
	b := newStoreBed(t)
	at := func(name, namespace, kind, targetNamespace, target, actor, cluster string, hours int) {
		r := newRecords(name)[0]
		r.Namespace, r.Target, r.ActorID, r.Cluster = namespace, audit.Target{Kind: kind, Namespace: targetNamespace, Name: target}, actor, cluster
		r.Time = recordsBegin.Add(time.Duration(hours) * time.Hour)
		b.append(r)
	}
	at("one", "exec", "Deployment", "shop", "web", "alice", "eu", 1)
	at("two", "exec", "StatefulSet", "shop", "web", "bob", "eu", 2)
	at("three", "other", "Deployment", "bank", "web", "alice", "us", 3)
	at("four", "exec", "Node", "", "worker-1", "system:serviceaccount:a:b", "us", 4)
	cases := map[string]struct {
		reason string
		filter audit.Filter
		want   string
	}{
		"All":           {"from the oldest", audit.Filter{}, "one two three four"},
		"Most":          {"the newest", audit.Filter{Most: 3}, "two three four"},
		"ByName":        {"in any namespace", audit.Filter{Execution: "three"}, "three"},
		"ByFullName":    {"in its namespace", audit.Filter{Execution: "other/three"}, "three"},
		"OfNoNamespace": {"there is none there", audit.Filter{Execution: "exec/three"}, ""},
		"ByUID":         {"names may come again, UIDs do not", audit.Filter{Execution: "uid-two"}, "two"},
		"Target":        {"all of that name", audit.Filter{Target: "web"}, "one two three"},
		"TargetIn":      {"of a namespace", audit.Filter{Target: "shop/web"}, "one two"},
		"TargetOf":      {"of a kind", audit.Filter{Target: "deployment/web"}, "one three"},
		"TargetFull":    {"one object", audit.Filter{Target: "Deployment/shop/web"}, "one"},
		"Node":          {"outside of namespaces", audit.Filter{Target: "node/worker-1"}, "four"},
		"Actor":         {"by name", audit.Filter{Actor: "alice"}, "one three"},
		"Account":       {"by name", audit.Filter{Actor: "system:serviceaccount:a:b"}, "four"},
		"Cluster":       {"of one of those that share it", audit.Filter{Cluster: "us"}, "three four"},
		"Since":         {"that time included", audit.Filter{Since: recordsBegin.Add(3 * time.Hour)}, "three four"},
		"Both":          {"what both take", audit.Filter{Actor: "alice", Target: "shop/web"}, "one"},
		"Quote":         {"a value is no SQL", audit.Filter{Actor: "' or true --"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, line := range b.list(tc.filter) {
				got = append(got, strings.TrimSuffix(line, "/1"))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestALongList(t *testing.T) {
	b := newStoreBed(t)
	var all []audit.Record
	for i := range 400 {
		all = append(all, newRecords(fmt.Sprintf("ke-%d", i))...)
	}
	b.append(all...)
	for most, want := range map[int]int{0: 2400, 1: 1, 1000: 1000, 1001: 1001, 5000: 2400} {
		got := b.list(audit.Filter{Most: most})
		seen := map[string]bool{}
		for _, line := range got {
			seen[line] = true
		}
		if len(got) != want || len(seen) != want {
			t.Errorf("%d events of %d, want %d", len(got), most, want)
		}
	}
}

// newRequest is one that failed, of an action with parameters.
func newRequest(uid, action, parameters, message string) *v1alpha1.KubernetesExecution {
	at := metav1.NewMicroTime(recordsBegin.Add(time.Minute))
	return &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Name: "scale-web", Namespace: "exec", UID: types.UID(uid), CreationTimestamp: metav1.NewTime(recordsBegin)},
		Spec:       v1alpha1.KubernetesExecutionSpec{Action: action, Parameters: &runtime.RawExtension{Raw: []byte(parameters)}, RequestedBy: message, Reason: message},
		Status: v1alpha1.KubernetesExecutionStatus{
			Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonValidationError, Message: message,
			PhaseTransitions: []v1alpha1.PhaseTransition{{Phase: v1alpha1.PhaseFailed, At: at}},
		},
	}
}

// TestWhateverIsAskedForCanBeRecorded verifies that every request can be recorded. A record that
// the database rejects would be rejected forever.
func TestWhateverIsAskedForCanBeRecorded(t *testing.T) {
	b := newStoreBed(t)
	n := 0
	record := func(tb interface{ Fatalf(string, ...any) }, action, parameters, message string) {
		n++
		ke := newRequest(fmt.Sprintf("uid-%d", n), action, parameters, message)
		if err := b.store.Append(t.Context(), audit.Records(ke, "local")); err != nil {
			tb.Fatalf("%q %q: %v", parameters, message, err)
		}
	}
	deep := func(open, end string) string { return strings.Repeat(open, 20000) + "1" + strings.Repeat(end, 20000) }
	for _, parameters := range []string{
		`{"a":1e999999}`, `{"a":-1e-999999}`, `{"a":123456789012345678901234567890}`, `{"a":"\u0000"}`, `{"\u0000":1}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\x00\"}",
		deep("[", "]"), deep(`{"a":`, "}"), `nonsense`, ``, `null`, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, `[` + strings.Repeat(`"x",`, 100000) + `1]`,
	} {
		record(t, "scale_deployment", parameters, parameters)
		record(t, "update_secret", parameters, "\x00\xff")
	}
	rapid.Check(t, func(rt *rapid.T) {
		text, err := json.Marshal(map[string]any{rapid.String().Draw(rt, "name"): rapid.String().Draw(rt, "value"), "f": rapid.Float64().Draw(rt, "number")})
		if err != nil {
			rt.Skip(err)
		}
		record(rt, rapid.String().Draw(rt, "action"), string(text), rapid.String().Draw(rt, "message"))
	})
	b.wantWhole(int64(2 * n))
}

// No column of no row has a value of a Secret.
func TestTheDatabaseHasNoSecret(t *testing.T) {
	b := newStoreBed(t)
	const secret = "hunter2-Sup3r"
	ke := newRequest("uid-1", "update_secret", `{"secret":"db","namespace":"shop","data":{"password":"`+secret+`"}}`, "why not "+secret)
	ke.Spec.RequestedBy = "alice"
	ke.Spec.Reason = "set it to " + secret
	b.append(audit.Records(ke, "local")...)
	for _, table := range []string{"execution_audit_event", "execution_summary"} {
		wantValue(b, int64(0), `select count(*) from executor.`+table+` r where r::text like '%'||$1||'%'`, secret)
	}
	wantValue(b, "db", `select payload #>> '{parameters,secret}' from executor.execution_audit_event where type = 'requested'`)
}
