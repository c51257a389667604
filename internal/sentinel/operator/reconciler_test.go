package operator

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// A fakeWatch stores the followed Secrets.
type fakeWatch map[types.NamespacedName][]string

func (w fakeWatch) WatchSecretsOf(key types.NamespacedName, secrets []string) { w[key] = secrets }

// TestReconcile checks the effect of a reconcile on each object, and its requeue delay.
func TestReconcile(t *testing.T) {
	key := types.NamespacedName{Namespace: "n", Name: "one"}
	valid := func() *v1alpha1.SentinelConfig {
		sc := object()
		sc.Spec = v1alpha1.SentinelConfigSpec{
			ResourceType: "clusters", HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: "http://fleet"},
			Broker: v1alpha1.Broker{Type: v1alpha1.BrokerNATS, Topic: "events", CredentialsSecretRef: &v1alpha1.SecretRef{Name: "creds"}},
		}
		return sc
	}
	secret := map[string][]byte{"url": []byte("nats://broker")}
	cases := map[string]struct {
		reason string
		object *v1alpha1.SentinelConfig
		host   func(*fakeHost)
		again  time.Duration
		want   RefusalReason // of the refusal
		member bool
		follow []string
	}{
		"Good":    {"it is handed over", valid(), func(h *fakeHost) { h.secrets["creds"] = secret }, 0, "", true, []string{"creds"}},
		"Missing": {"the Secret is not there: looked at again, and when it comes", valid(), func(*fakeHost) {}, 30 * time.Second, ReasonSecret, true, []string{"creds"}},
		"Empty":   {"the Secret lacks the key", valid(), func(h *fakeHost) { h.secrets["creds"] = nil }, 30 * time.Second, ReasonSecret, true, []string{"creds"}},
		"Away":    {"the API server does not hand it over", valid(), func(h *fakeHost) { h.err = errAway }, 30 * time.Second, ReasonLoad, true, []string{"creds"}},
		"Invalid": {"looked at again as anything that can not be loaded, as the specification has it", object(), func(*fakeHost) {}, 30 * time.Second, ReasonInvalid, true, nil},
		"Gone":    {"there is none", nil, func(*fakeHost) {}, 0, "", false, nil},
		"Deleting": {"it is as good as gone", func() *v1alpha1.SentinelConfig {
			sc := valid()
			sc.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			return sc
		}(), func(*fakeHost) {}, 0, "", false, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			h := newFakeHost()
			if tc.object != nil {
				h = newFakeHost(tc.object)
			}
			tc.host(h)
			roster := newMemberSet(Config{Namespace: "n", Name: "one", Identity: "us"}, Deps{
				Log:        slog.New(slog.DiscardHandler),
				OpenAPI:    func(sentinel.API) (FleetAPI, error) { return nil, errAway },
				OpenBroker: func(sentinelconfig.Broker) (Broker, error) { return nil, errAway },
			}, h, &fakeTeller{})
			roster.setRunContext(ctx)
			defer func() { cancel(); roster.stopAllAndWait() }()
			w := fakeWatch{}
			r := &reconciler{objects: h, roster: roster, secrets: w, complete: func(*sentinelconfig.Settings) {}, log: slog.New(slog.DiscardHandler)}
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if err != nil || result.RequeueAfter != tc.again {
				t.Errorf("%s: got %+v and %v, want it again after %s", tc.reason, result, err, tc.again)
			}
			if diff := cmp.Diff(tc.follow, w[key]); diff != "" {
				t.Errorf("%s: Secrets followed (-want +got):\n%s", tc.reason, diff)
			}
			if m := roster.members[key]; (m != nil) != tc.member {
				t.Errorf("%s: member %t, want %t", tc.reason, m != nil, tc.member)
			}
			if err := roster.checkMemberReady("one"); tc.member == errors.Is(err, errGone) {
				t.Errorf("%s: ready says %v", tc.reason, err)
			}
			if tc.object == nil || !tc.member {
				return
			}
			_, refusal := r.loadSettingsAndWatchSecrets(ctx, tc.object)
			if refusal != nil && (refusal.Reason != tc.want || refusal.Generation != tc.object.Generation) || refusal == nil && tc.want != "" {
				t.Errorf("%s: refused for %+v, want %q", tc.reason, refusal, tc.want)
			}
		})
	}
}

// TestAnotherLifeOfTheName checks that an object that was recreated with the same name is a new
// one. The sentinel of the old object stops first.
func TestAnotherLifeOfTheName(t *testing.T) {
	h := newFakeHost(object())
	ctx, cancel := context.WithCancel(t.Context())
	roster := newMemberSet(Config{Namespace: "n", Identity: "us"}, Deps{Log: slog.New(slog.DiscardHandler)}, h, &fakeTeller{})
	roster.setRunContext(ctx)
	defer func() { cancel(); roster.stopAllAndWait() }()
	first := roster.getOrStartMember(object())
	if roster.getOrStartMember(object()) != first {
		t.Error("the same object has another member")
	}
	other := object()
	other.UID = "2"
	second := roster.getOrStartMember(other)
	if second == first || !first.instance.CurrentState().Stopped {
		t.Error("the member of an object that is gone still runs")
	}
	key := second.ref.NamespacedName
	if !roster.stopAndRemoveMember(key) || roster.stopAndRemoveMember(key) || !second.instance.CurrentState().Stopped {
		t.Error("what is removed still runs, or can be removed twice")
	}
}

// TestNews holds what of an object is looked at again.
func TestNews(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.SentinelConfig)
		want   bool
	}{
		"Status": {"it is we who write it", func(sc *v1alpha1.SentinelConfig) { sc.Status.EventsPublished = 1 }, false},
		"Spec":   {"it is another generation", func(sc *v1alpha1.SentinelConfig) { sc.Generation++ }, true},
		"Life":   {"it was deleted and made anew while nothing was told", func(sc *v1alpha1.SentinelConfig) { sc.UID = "2" }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := object()
			tc.change(changed)
			if got := specOrUIDChanged().Update(event.UpdateEvent{ObjectOld: object(), ObjectNew: changed}); got != tc.want {
				t.Errorf("%s: looked at: %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
	if !specOrUIDChanged().Create(event.CreateEvent{Object: object()}) || !specOrUIDChanged().Delete(event.DeleteEvent{Object: object()}) {
		t.Error("the begin and the end of an object are not looked at")
	}
}
