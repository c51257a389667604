package guard

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
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
			Reason: says.reason, Code: int32(says.code), Message: says.message, //nolint:gosec // it is one of HTTP
		})
	}))
	t.Cleanup(s.Close)
	return s
}

// lookerOf looks at a cluster by the API server main.
func lookerOf(t *testing.T, main *httptest.Server, client kubernetes.Interface) looker {
	t.Helper()
	cfg := &rest.Config{
		Host: main.URL, BearerToken: "token",
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: main.Certificate().Raw})},
	}
	all, err := newServers(cfg, client, "executor")
	if err != nil {
		t.Fatal(err)
	}
	return looker{
		options: Options{Namespace: "executor"}.withDefaults(), client: client, servers: all,
		record: &record{client: client, namespace: "executor", propagation: DefaultPropagation},
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
		}, 1, "was not refused", answer{}},
		"OneTakesItAndOneStarts": {"no proof by one is no excuse for the other", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			return apiServer(t, accepts, asked).Listener.Addr().String()
		}, 1, "was not refused", noRoles},
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
			err = l.tried(t.Context())
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
			client := fake.NewClientset(Objects(Options{Namespace: "executor"}.withDefaults())...)
			l := lookerOf(t, apiServer(t, tc.says, &asked), client)
			objects, err := l.present(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			id := "period 1"
			lease := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "executor", Name: RecordName, ResourceVersion: "1", Annotations: map[string]string{annotationObjects: objects}},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &id, AcquireTime: &metav1.MicroTime{Time: time.Unix(1000, 0)}},
			}
			leases := client.CoordinationV1().Leases("executor")
			if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			w := newWatch(l.look, l.present, nil)
			if err := w.lookOnce(t.Context()); err == nil || asked.Load() != 1 {
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
			now, err := leases.Get(t.Context(), RecordName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if over := periodOf(now).ID != id; over != tc.ends {
				t.Errorf("the period has ended: %t, want %t", over, tc.ends)
			}
		})
	}
}
