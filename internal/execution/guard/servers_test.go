package guard

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// An answer is what an API server says to a forged approval.
type answer struct {
	code    int
	reason  metav1.StatusReason
	message string
}

var (
	accepts = answer{code: http.StatusCreated}
	refuses = answer{http.StatusForbidden, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'executor-execution-requests' denied request: " + forged}
	// noRoles is also what one says that starts, until it knows the roles.
	noRoles = answer{http.StatusForbidden, metav1.StatusReasonForbidden, `User "controller" cannot create resource "kubernetesexecutions"`}
)

// apiServer is one that answers forged approvals.
func apiServer(t *testing.T, says answer, asked *atomic.Int32) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "Bearer token" || r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("asked %s as %q", r.URL, r.Header.Get("Authorization"))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(says.code)
		if says.code == http.StatusCreated {
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "kubernetesexecution.kubernaut.io/v1alpha1", "kind": "KubernetesExecution"})
			return
		}
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Reason: says.reason, Code: int32(says.code), Message: says.message,
		})
	}))
	t.Cleanup(s.Close)
	return s
}

// lookerOf looks at a cluster by the API server main.
func lookerOf(t *testing.T, main *httptest.Server, client kubernetes.Interface) observer {
	t.Helper()
	cfg := &rest.Config{
		Host: main.URL, BearerToken: "token",
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: main.Certificate().Raw})},
	}
	all, err := newAPIServers(cfg, client, "executor")
	if err != nil {
		t.Fatal(err)
	}
	return observer{
		options: Options{Namespace: "executor"}.withDefaults(), client: client, servers: all,
		record: &periodRecord{client: client, namespace: "executor", propagation: DefaultPropagation},
	}
}

// TestEachAPIServerIsTried holds that one API server that does not go by the guard
// is enough for it to be missing, whichever server answers otherwise.
func TestEachAPIServerIsTried(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		other  func(t *testing.T, asked *atomic.Int32) string // its address
		asked  int32
		says   string // empty is that the guard holds
		main   answer // the zero value is refuses
	}{
		"BothRefuse": {"all go by it", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			return apiServer(t, refuses, asked).Listener.Addr().String()
		}, 1, "", answer{}},
		"OneTakesIt": {"it has not heard of the policies", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			return apiServer(t, accepts, asked).Listener.Addr().String()
		}, 1, "was not rejected", answer{}},
		"OneTakesItAndOneStarts": {"no proof by one is no excuse for the other", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			return apiServer(t, accepts, asked).Listener.Addr().String()
		}, 1, "was not rejected", noRoles},
		"OneStarts": {"it refuses without the policies", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			return apiServer(t, noRoles, asked).Listener.Addr().String()
		}, 1, "cannot create", answer{}},
		"OneIsAway": {"nobody can write there either, as far as can be seen", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			s := apiServer(t, accepts, asked)
			defer s.Close()
			return s.Listener.Addr().String()
		}, 0, "", answer{}},
		"NoneOfOurs": {"it cannot prove that it is one, and gets no credential", func(t *testing.T, _ *atomic.Int32) string {
			t.Helper()
			plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("it got %v", r.Header) }))
			t.Cleanup(plain.Close)
			return plain.Listener.Addr().String()
		}, 0, "", answer{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first, other atomic.Int32
			main := apiServer(t, cmp.Or(tc.main, refuses), &first)
			address := tc.other(t, &other)
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				t.Fatal(err)
			}
			number, err := strconv.ParseInt(port, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			client := fake.NewClientset(&discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: ServerSlice},
				Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{host}}},
				Ports:      []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(number))}},
			})
			l := lookerOf(t, main, client)
			err = l.verifyServersEnforcePolicies(t.Context())
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%s: %v, want %q of %s", tc.reason, err, tc.says, address)
			}
			if unknown := tc.says == "cannot create"; err != nil && IsUnknown(err) != unknown {
				t.Errorf("%s: nobody can tell: %t, want %t: %v", tc.reason, !unknown, unknown, err)
			}
			if first.Load() != 1 || other.Load() != tc.asked {
				t.Errorf("%s: %d and %d requests", tc.reason, first.Load(), other.Load())
			}
		})
	}
}

// TestOnlyWhatIsTakenEndsAPeriod holds that a period outlasts refusals which the
// policies did not give, as of an API server that starts, while nothing is
// confirmed, and that it ends where a forged approval is taken.
func TestOnlyWhatIsTakenEndsAPeriod(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		says answer
		ends bool
	}{
		"NoRoles":     {noRoles, false},
		"NotReady":    {answer{http.StatusForbidden, metav1.StatusReasonForbidden, "not yet ready to handle request"}, false},
		"NoCRD":       {answer{http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource"}, false},
		"OtherSchema": {answer{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec.action: Unsupported value"}, false},
		"Taken":       {accepts, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			client := fake.NewClientset(ValidatingPolicyObjects(Options{Namespace: "executor"}.withDefaults())...)
			l := lookerOf(t, apiServer(t, tc.says, &asked), client)
			objects, err := l.readVerifiedVersions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			period := Period{ID: "period 1", Since: time.Unix(1000, 0)}
			if err := client.Tracker().Add(recordOf(period, objects)); err != nil {
				t.Fatal(err)
			}
			w := newWatch(l.observeAndRecordPeriod, l.readVerifiedVersions, nil)
			if err := w.observeOnce(t.Context()); err == nil || asked.Load() != 1 {
				t.Errorf("after %d trials the look gives %v", asked.Load(), err)
			}
			if err := w.Missing(); err == nil || IsUnknown(err) == tc.ends {
				t.Errorf("Missing() = %v, and nobody can tell: %t, want %t", err, IsUnknown(err), !tc.ends)
			}
			if w.Ready() == nil {
				t.Error("it is ready")
			}
			if _, err := w.Confirm(t.Context()); err == nil {
				t.Error("the period is confirmed")
			}
			now, err := client.CoordinationV1().Leases("executor").Get(t.Context(), RecordName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if over := periodOf(now).ID != period.ID; over != tc.ends {
				t.Errorf("the period has ended: %t, want %t", over, tc.ends)
			}
		})
	}
}

// recordOf is the record of a period.
func recordOf(p Period, objects string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "executor", Name: RecordName, ResourceVersion: "1", Annotations: map[string]string{annotationObjects: objects}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &p.ID, AcquireTime: &metav1.MicroTime{Time: p.Since}},
	}
}

// TestForgedRecord holds that a period which somebody wrote into the record in a
// gap is not gone on with, and that of another replica is.
func TestForgedRecord(t *testing.T) {
	t.Parallel()
	gap := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		unseen bool // the gap, as after a restart
		since  time.Time
		now    time.Time // by the API server's clock, at the first look after the gap
		takes  bool
	}{
		"Before":  {"it covers what was asked for in the gap", false, gap.Add(-time.Hour), gap.Add(time.Minute), false},
		"Within":  {"not all API servers went by the policies", false, gap.Add(DefaultPropagation - time.Second), gap.Add(time.Minute), false},
		"Ahead":   {"nobody begins a period before its time", false, gap.Add(time.Hour), gap.Add(time.Minute), false},
		"Replica": {"another replica began it", false, gap.Add(DefaultPropagation + time.Second), gap.Add(DefaultPropagation), true},
		"Restart": {"no gap is known of", true, gap, gap.Add(time.Minute), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			clock := gap
			o := Options{Namespace: "executor"}.withDefaults()
			client := fake.NewClientset()
			client.PrependReactor("create", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
				c, creates := a.(clienttesting.CreateAction)
				if !creates {
					return false, nil, nil
				}
				if made, isLease := c.GetObject().(*coordinationv1.Lease); !isLease || made.GenerateName == "" {
					return false, nil, nil
				}
				return true, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(clock)}}, nil
			})
			l := lookerOf(t, apiServer(t, refuses, &asked), client)
			if _, err := l.observeAndRecordPeriod(t.Context()); !tc.unseen && err == nil {
				t.Fatal("nothing is missing in the gap")
			}
			if tc.unseen {
				l.record = &periodRecord{client: client, namespace: "executor", propagation: DefaultPropagation}
			}
			for _, object := range ValidatingPolicyObjects(o) {
				if err := client.Tracker().Add(object); err != nil {
					t.Fatal(err)
				}
			}
			objects, err := l.readVerifiedVersions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			period := Period{ID: "period 1", Since: tc.since}
			if err := client.Tracker().Add(recordOf(period, objects)); err != nil {
				t.Fatal(err)
			}
			clock = tc.now
			for range 2 {
				seen, err := l.observeAndRecordPeriod(t.Context())
				if tc.takes && (err != nil || seen.period != period) || !tc.takes && !errors.As(err, &settlingError{}) {
					t.Errorf("%s: %+v, %v", tc.reason, seen.period, err)
				}
				clock = clock.Add(2 * time.Hour) // what was refused stays so
			}
		})
	}
}
