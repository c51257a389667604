package shoot_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestManifestJSON: unset fields are omitted, as they would otherwise remove the values
// of Gardener and other clients. Required fields are sent even if zero.
func TestManifestJSON(t *testing.T) {
	cases := map[string]struct {
		reason   string
		manifest shoot.Manifest
		want     string
	}{
		"Nothing": {
			reason: "only what Gardener requires is left",
			want:   `{"apiVersion":"","kind":"","metadata":{"name":""},"spec":{"cloudProfile":{"name":""},"region":"","kubernetes":{},"provider":{"type":""}}}`,
		},
		"EmptyParts": {
			reason: "an empty network says nothing of addresses, an empty pool has no machines, a zero included",
			manifest: shoot.Manifest{
				APIVersion: shoot.APIVersion, Kind: shoot.Kind,
				Metadata: shoot.Metadata{Name: "a", Labels: map[string]string{}},
				Spec: shoot.Spec{
					Networking: &shoot.Networking{},
					Provider:   shoot.Provider{InfrastructureConfig: json.RawMessage{}, Workers: []shoot.Worker{{Volume: &shoot.Volume{}, Zones: []string{}, Taints: []shoot.Taint{{}}, Machine: shoot.Machine{Image: &shoot.Image{}}}}},
				},
			},
			want: `{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","metadata":{"name":"a"},"spec":{"cloudProfile":{"name":""},"region":"","kubernetes":{},"networking":{},` +
				`"provider":{"type":"","workers":[{"name":"","machine":{"type":"","image":{"name":""}},"minimum":0,"maximum":0,"volume":{"size":""},"taints":[{"key":"","effect":""}]}]}}}`,
		},
		"Everything": {
			reason: "every field has the name that Gardener gives it, and providers' configs are passed on",
			manifest: shoot.Manifest{
				APIVersion: shoot.APIVersion, Kind: shoot.Kind,
				Metadata: shoot.Metadata{Name: "a", Namespace: "garden-x", Labels: map[string]string{shoot.LabelCluster: "c"}, Annotations: map[string]string{shoot.AnnotationGeneration: "7"}},
				Spec: shoot.Spec{
					CloudProfile: shoot.CloudProfile{Name: "p", Kind: "CloudProfile"}, CredentialsBindingName: "b", Region: "r",
					Kubernetes: shoot.Kubernetes{Version: "1.34"},
					Networking: &shoot.Networking{Type: "calico", Nodes: "10.0.0.0/16", Pods: "10.1.0.0/16", Services: "10.2.0.0/16"},
					Provider: shoot.Provider{
						Type: "aws", InfrastructureConfig: json.RawMessage(`{"kind":"I"}`), ControlPlaneConfig: json.RawMessage(`{"kind":"C"}`),
						Workers: []shoot.Worker{{
							Name: "w", Machine: shoot.Machine{Type: "m", Image: &shoot.Image{Name: "i", Version: "1"}}, Minimum: 1, Maximum: 3,
							Volume: &shoot.Volume{Type: "ssd", Size: "50Gi"}, Zones: []string{"z"}, Labels: map[string]string{"k": "v"},
							Taints: []shoot.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}},
						}},
					},
				},
			},
			want: `{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot",` +
				`"metadata":{"name":"a","namespace":"garden-x","labels":{"fleetloop.io/cluster-id":"c"},"annotations":{"fleetloop.io/generation":"7"}},` +
				`"spec":{"cloudProfile":{"name":"p","kind":"CloudProfile"},"credentialsBindingName":"b","region":"r","kubernetes":{"version":"1.34"},` +
				`"networking":{"type":"calico","nodes":"10.0.0.0/16","pods":"10.1.0.0/16","services":"10.2.0.0/16"},` +
				`"provider":{"type":"aws","infrastructureConfig":{"kind":"I"},"controlPlaneConfig":{"kind":"C"},"workers":[{"name":"w","machine":{"type":"m","image":{"name":"i","version":"1"}},` +
				`"minimum":1,"maximum":3,"volume":{"type":"ssd","size":"50Gi"},"zones":["z"],"labels":{"k":"v"},"taints":[{"key":"k","value":"v","effect":"NoSchedule"}]}]}}}`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(c.manifest)
			if err != nil {
				t.Fatalf("marshal: %v", err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			var back shoot.Manifest
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatalf("unmarshal: %v", err)
			}
			if again, _ := json.Marshal(back); string(again) != string(got) {
				t.Errorf("%s: read and written again it is %s", c.reason, again)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	throttled := &shoot.Error{Class: shoot.ClassThrottled, RetryAfter: 7 * time.Second, Err: errors.New("slow down")}
	cases := map[string]struct {
		reason string
		err    error
		class  shoot.Class
		after  time.Duration
		text   string
	}{
		"Plain":   {reason: "an error of nobody's is of no class", err: io.EOF, class: shoot.ClassUnknown, text: "EOF"},
		"Own":     {reason: "the class is the error's, the text is the cause's alone", err: throttled, class: shoot.ClassThrottled, after: 7 * time.Second, text: "slow down"},
		"Wrapped": {reason: "whoever adds words does not hide the class", err: fmt.Errorf("apply: %w", throttled), class: shoot.ClassThrottled, after: 7 * time.Second, text: "apply: slow down"},
		"Joined":  {reason: "nor does whoever adds another error", err: errors.Join(io.EOF, throttled), class: shoot.ClassThrottled, after: 7 * time.Second, text: "EOF\nslow down"},
		"Errorf":  {reason: "the class comes with the words", err: shoot.NewClassErrorf(shoot.ClassInvalid, "shoot %q: %w", "a", io.EOF), class: shoot.ClassInvalid, text: `shoot "a": EOF`},
		"Outermost": {
			reason: "the last class applies", err: shoot.NewClassErrorf(shoot.ClassForeign, "not ours: %w", throttled), class: shoot.ClassForeign, text: "not ours: slow down",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := shoot.ClassOf(c.err); got != c.class {
				t.Errorf("%s: class %s, want %s", c.reason, got, c.class)
			}
			if got := shoot.RetryAfter(c.err); got != c.after {
				t.Errorf("%s: retry after %s, want %s", c.reason, got, c.after)
			}
			if got := c.err.Error(); got != c.text {
				t.Errorf("%s: %q, want %q", c.reason, got, c.text)
			}
		})
	}
	if err := shoot.NewClassErrorf(shoot.ClassInvalid, "read: %w", io.EOF); !errors.Is(err, io.EOF) {
		t.Error("the cause is lost")
	}
	if shoot.ClassOf(nil) != shoot.ClassUnknown || shoot.RetryAfter(nil) != 0 {
		t.Error("no error has something to say")
	}
}

// TestClasses: the classes are labels of a metric, each of them once.
func TestClasses(t *testing.T) {
	list := shoot.ListClasses()
	if sorted := slices.Sorted(slices.Values(list)); len(slices.Compact(sorted)) != len(list) || slices.Contains(list, "") {
		t.Errorf("classes twice or empty: %v", list)
	}
	if !slices.Contains(list, shoot.ClassOf(io.EOF)) {
		t.Error("an error of nobody's has a class that is not listed")
	}
}
