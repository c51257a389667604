package consoleapp

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
)

// TestCheckCoverage covers that each gap and overlap is found, with the name of a resource, and that parts
// of a fleet are no overlaps.
func TestCheckCoverage(t *testing.T) {
	api := hyperfleettest.New(hyperfleettest.Config{})
	server := httptest.NewServer(api)
	defer server.Close()
	var first, far string
	for i, region := range []string{"eu", "eu", "us", "ap"} {
		id := api.CreateResource("clusters", fmt.Sprint("c-", i), "region", region)
		switch region {
		case "us":
			first = id
		case "ap":
			far = id
		}
	}
	f, err := newFleetClient(Part{Console: console.Config{FleetAPI: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := f.clientWithToken("")
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	config := func(name, region string, sharding *v1alpha1.Sharding) hosts.NamedSentinel {
		s := &v1alpha1.SentinelConfig{Spec: v1alpha1.SentinelConfigSpec{
			ResourceType: "clusters", HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: "http://elsewhere:8000"}, Sharding: sharding,
			Broker: v1alpha1.Broker{Type: v1alpha1.BrokerNATS, Topic: "t", URL: "nats://broker:4222"}, ShardSelector: &v1alpha1.ShardSelector{MatchLabels: map[string]string{"region": region}},
		}}
		return hosts.NamedSentinel{Name: name, Config: s}
	}
	part := func(i int32) *v1alpha1.Sharding { return &v1alpha1.Sharding{Count: new(int32(2)), Index: &i} }
	list := []hosts.NamedSentinel{config("eu-0", "eu", part(0)), config("eu-1", "eu", part(1)), config("us", "us", nil), config("us-again", "us", nil)}
	got, err := f.checkSentinelCoverage(t.Context(), console.Person{}, list)
	if err != nil {
		t.Fatal(err)
	}
	want := hosts.Coverage{
		Collections: []hosts.CollectionCoverage{{Collection: "clusters", Resources: 4, Unwatched: 1, Overlapping: 1}, {Collection: "nodepools"}},
		Gaps:        []hosts.CoverageGroup{{Collection: "clusters", Labels: "region=ap", Resources: 1, ExampleID: far, ExampleName: "c-3"}},
		Overlaps:    []hosts.CoverageGroup{{Collection: "clusters", Labels: "region=us", Resources: 1, Sentinels: []string{"us", "us-again"}, ExampleID: first, ExampleName: "c-2"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(hosts.Coverage{}, "AsOf"), cmpopts.IgnoreFields(hosts.CollectionCoverage{}, "Inexact")); diff != "" {
		t.Errorf("the coverage (-want +got)\n%s", diff)
	}
	list[0].Config.Spec.HyperfleetAPI.URL = "http://another:8000"
	if got, err := f.checkSentinelCoverage(t.Context(), console.Person{}, list); err != nil || !slices.Equal(got.SeveralAPIs, []string{"http://another:8000", "http://elsewhere:8000"}) {
		t.Errorf("SentinelConfigs of two fleet APIs: %q, %v", got.SeveralAPIs, err)
	}
	list[0].Config.Spec.Broker.URL = ""
	if _, err := f.checkSentinelCoverage(t.Context(), console.Person{}, list); err == nil || !strings.Contains(err.Error(), "SentinelConfig eu-0") {
		t.Errorf("an invalid SentinelConfig: %v", err)
	}
}
