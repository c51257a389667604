package guard

import (
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// apiServer is one that refuses forged approvals, or takes them.
func apiServer(t *testing.T, guards bool, asked *atomic.Int32) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "Bearer token" || r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("asked %s as %q", r.URL, r.Header.Get("Authorization"))
		}
		w.Header().Set("Content-Type", "application/json")
		if !guards {
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "kubernetesexecution.kubernaut.io/v1alpha1", "kind": "KubernetesExecution"})
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
			Message: "ValidatingAdmissionPolicy 'executor-execution-requests' denied request: " + forged,
		})
	}))
	t.Cleanup(s.Close)
	return s
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
	}{
		"BothRefuse": {"all go by it", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			return apiServer(t, true, asked).Listener.Addr().String()
		}, 1, ""},
		"OneTakesIt": {"it has not heard of the policies", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			return apiServer(t, false, asked).Listener.Addr().String()
		}, 1, "was not refused"},
		"OneIsAway": {"nobody can write there either, as far as can be seen", func(t *testing.T, asked *atomic.Int32) string {
			t.Helper()
			s := apiServer(t, false, asked)
			defer s.Close()
			return s.Listener.Addr().String()
		}, 0, ""},
		"NoneOfOurs": {"it cannot prove that it is one, and gets no credential", func(t *testing.T, _ *atomic.Int32) string {
			t.Helper()
			plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("it got %v", r.Header) }))
			t.Cleanup(plain.Close)
			return plain.Listener.Addr().String()
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first, other atomic.Int32
			main := apiServer(t, true, &first)
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
			cfg := &rest.Config{
				Host: main.URL, BearerToken: "token",
				TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: main.Certificate().Raw})},
			}
			all, err := newServers(cfg, client, "executor")
			if err != nil {
				t.Fatal(err)
			}
			l := looker{options: Options{Namespace: "executor"}.withDefaults(), client: client, servers: all}
			err = l.tried(t.Context())
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%s: %v, want %q of %s", tc.reason, err, tc.says, address)
			}
			if first.Load() != 1 || other.Load() != tc.asked {
				t.Errorf("%s: %d and %d requests", tc.reason, first.Load(), other.Load())
			}
		})
	}
}
