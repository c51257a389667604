package fleetapi_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/settings"
)

//nolint:gosec // paths of token files are no tokens
func TestConfig(t *testing.T) {
	want := fleetapi.Config{
		Auth:     auth.Config{Mode: auth.ModeNone},
		Timeline: timeline.Config{Retention: timeline.DefaultRetention},
		RequiredAdapters: fleetapi.RequiredAdapters{
			Clusters:  []string{"validation", "dns", "provisioning"},
			NodePools: []string{"validation", "provisioning"},
		},
		NodePoolsOnClusterDelete: fleetapi.Cascade,
		MaxWatches:               watch.DefaultMaxWatches,
		MaxBodyBytes:             fleetapi.DefaultMaxBody,
		ChangeRetention:          fleetapi.DefaultChangeRetention,
		RevisionLimit:            fleetapi.DefaultRevisionLimit,
		SummaryLabels:            []string{"region", "environment"},
	}
	var got fleetapi.Config
	if _, err := settings.Load(&got, settings.Source{}); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "defaults", want, got)

	got = fleetapi.Config{}
	_, err := settings.Load(&got, settings.Source{
		File: "fleet-api.yaml",
		FileData: []byte(`
auth:
  mode: bearer
  issuers:
  - {issuer: "https://login.example.com", audience: fleet-api}
required_adapters:
  nodepools: []
`),
		Env: func(name string) (string, bool) {
			v, ok := map[string]string{"FLEET_API_REQUIRED_ADAPTERS_CLUSTERS": "gardener,dns", "FLEET_API_TOKEN_FILE": "/etc/tokens.yaml"}[name]
			return v, ok
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want.Auth = auth.Config{Mode: auth.ModeBearer, TokenFile: "/etc/tokens.yaml", Issuers: []auth.Issuer{{
		Issuer: "https://login.example.com", Audience: "fleet-api",
		Algorithms: []string{"RS256", "ES256", "EdDSA"}, TenantClaim: "tenant", RolesClaim: "roles", SystemRole: "system",
	}}}
	want.RequiredAdapters.Clusters, want.RequiredAdapters.NodePools = []string{"gardener", "dns"}, []string{}
	wantEqual(t, "from file and environment", want, got)

	if _, err := settings.Schema(&got, "fleet API"); err != nil {
		t.Error(err)
	}
}
