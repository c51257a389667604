package manifest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
)

// TestRefusals compares whole messages, as users see them.
func TestRefusals(t *testing.T) {
	noDefaults := aws()
	noDefaults.Region, noDefaults.MachineType, noDefaults.VolumeType, noDefaults.NodeCIDR, noDefaults.InfrastructureConfig = "", "", "", "", ""
	noDefaults.Zones = nil
	cases := map[string]struct {
		reason string
		cfg    manifest.Config
		claim  clusterworker.Claim
		want   string
	}{
		"NoJSON":        {reason: "it can not come from the database, but nothing breaks", claim: claim(`{"a"`), want: "spec is not valid JSON"},
		"NoObject":      {reason: "a spec has keys", claim: claim(`[]`), want: "spec must be an object, not a list"},
		"VersionNumber": {reason: "1.30 would become 1.3", claim: claim(`{"version":1.30}`), want: "spec.version must be a string, not a number; put it in quotes"},
		"VersionWord":   {reason: "versions are compared", claim: claim(`{"version":"newest"}`), want: `spec.version is "newest", not a Kubernetes version; use the form 1.34 or 1.34.1`},
		"VersionMajor":  {reason: "it names no version", claim: claim(`{"version":"1"}`), want: `spec.version is "1", not a Kubernetes version; use the form 1.34 or 1.34.1`},
		"VersionTwice":  {reason: "nobody can say which one is meant", claim: claim(`{"version":"1.34","kubernetes":{"version":"1.33"}}`), want: "spec.version and spec.kubernetes.version have different values; set only one of them"},
		"Region":        {reason: "the type is named", claim: claim(`{"region":true}`), want: "spec.region must be a string, not true or false"},
		"Nested":        {reason: "the whole path is named", claim: claim(`{"network":{"type":{}}}`), want: "spec.network.type must be a string, not an object"},
		"Network":       {reason: "its keys can not be read", claim: claim(`{"network":"flat"}`), want: "spec.network must be an object, not a string"},
		"CIDR":          {reason: "Gardener would say so much later", claim: claim(`{"network":{"node_cidr":"10.0.0.0"}}`), want: `spec.network.nodeCIDR is "10.0.0.0", which is not a CIDR; use the form 10.0.0.0/16`},
		"HostBits":      {reason: "Gardener takes only the range itself", claim: claim(`{"network":{"podCIDR":"10.1.2.3/16"}}`), want: `spec.network.podCIDR is "10.1.2.3/16", which has host bits set; use 10.1.0.0/16`},
		"Spellings":     {reason: "two that differ", claim: claim(`{"network":{"podCIDR":"10.0.0.0/16","pod_cidr":"10.1.0.0/16"}}`), want: "spec.network.podCIDR and spec.network.pod_cidr have different values; set only one of them"},
		"Provider":      {reason: "providers' configs are objects", claim: claim(`{"provider":{"infrastructureConfig":"x"}}`), want: "spec.provider.infrastructureConfig must be an object, not a string"},
		"Pool":          {reason: "the pool is named", claim: claim(`{}`, "workers", `{"replicas":"3"}`), want: `node pool "workers": spec.replicas must be a number, not a string`},
		"Fraction":      {reason: "there are no half machines", claim: claim(`{}`, "workers", `{"replicas":1.5}`), want: `node pool "workers": spec.replicas must be a whole number`},
		"Negative":      {reason: "nor less than none", claim: claim(`{}`, "workers", `{"autoscaling":{"min":-1,"max":2}}`), want: `node pool "workers": spec.autoscaling.min must not be negative; node pool "workers": only one of minimum and maximum is set; set both, or set spec.replicas`},
		"Huge":          {reason: "it does not fit", claim: claim(`{}`, "workers", `{"replicas":99999999999999999999}`), want: `node pool "workers": spec.replicas is too large`},
		"MaxBelowMin":   {reason: "Gardener refuses it", claim: claim(`{}`, "workers", `{"minimum":4,"maximum":3}`), want: `node pool "workers": maximum 3 is less than minimum 4`},
		"BothSizes":     {reason: "nobody can say which one is meant", claim: claim(`{}`, "workers", `{"replicas":3,"minimum":1,"maximum":5}`), want: `node pool "workers": spec.replicas sets a fixed number of machines; remove it, or remove minimum and maximum`},
		"HalfASize":     {reason: "a guess would cost money, or a cluster that can not grow", claim: claim(`{}`, "workers", `{"maximum":5}`), want: `node pool "workers": only one of minimum and maximum is set; set both, or set spec.replicas`},
		"Places":        {reason: "two that differ", claim: claim(`{}`, "workers", `{"minimum":1,"maximum":5,"autoscaling":{"max":6}}`), want: `node pool "workers": spec.maximum and spec.autoscaling.max have different values; set only one of them`},
		"AllZero":       {reason: "Gardener refuses it in its own words", claim: claim(`{}`, "a", `{"replicas":0}`, "b", `{"minimum":0,"maximum":0}`), want: "no node pool allows a machine, and Gardener requires at least one: set the maximum of a node pool to 1 or more"},
		"TwiceTheName":  {reason: "Gardener tells pools apart by name", claim: claim(`{}`, "a", `{}`, "a", `{}`), want: `node pool "a": the name is used twice`},
		"LongName":      {reason: "Gardener has 15 characters for it", claim: claim(`{}`, "sixteen-letters1", `{}`), want: `node pool "sixteen-letters1": the name must be 1 to 15 lower-case letters, digits and hyphens, beginning and ending with a letter or digit`},
		"Hyphen":        {reason: "it is a DNS label", claim: claim(`{}`, "-a", `{}`), want: `node pool "-a": the name must be 1 to 15 lower-case letters, digits and hyphens, beginning and ending with a letter or digit`},
		"BadName":       {reason: "it is a DNS label", claim: claim(`{}`, "Ünder_way", `{}`), want: `node pool "Ünder_way": the name must be 1 to 15 lower-case letters, digits and hyphens, beginning and ending with a letter or digit`},
		"Image":         {reason: "a version belongs to an image", claim: claim(`{}`, "a", `{"image":{"version":"1"}}`), want: `node pool "a": spec.image.name is missing: the image name is required with a version`},
		"VolumeSize":    {reason: "a type alone is no volume", claim: claim(`{}`, "a", `{"volume":{"type":"ssd"}}`), want: `node pool "a": spec.volume.size is missing: a volume requires a size and no default is configured`},
		"Zones":         {reason: "the entry is named", claim: claim(`{}`, "a", `{"zones":["x",1]}`), want: `node pool "a": spec.zones[1] must be a string, not a number; put it in quotes`},
		"ZonesText":     {reason: "a single one is a list, too", claim: claim(`{}`, "a", `{"zones":"x"}`), want: `node pool "a": spec.zones must be a list, not a string`},
		"Labels":        {reason: "labels are texts", claim: claim(`{}`, "a", `{"labels":{"x":"1","y":2}}`), want: `node pool "a": spec.labels.y must be a string, not a number; put it in quotes`},
		"TaintKey":      {reason: "what for", claim: claim(`{}`, "a", `{"taints":[{"effect":"NoExecute"}]}`), want: `node pool "a": spec.taints[0].key is missing: a taint requires a key`},
		"TaintEffect":   {reason: "there are three", claim: claim(`{}`, "a", `{"taints":[{"key":"k","effect":"noschedule"}]}`), want: `node pool "a": spec.taints[0].effect is "noschedule"; must be NoSchedule, PreferNoSchedule or NoExecute`},
		"TaintText":     {reason: "the short form is another program's", claim: claim(`{}`, "a", `{"taints":["k=v:NoExecute"]}`), want: `node pool "a": spec.taints[0] must be an object, not a string; node pool "a": spec.taints[0].key is missing: a taint requires a key; node pool "a": spec.taints[0].effect is ""; must be NoSchedule, PreferNoSchedule or NoExecute`},
		"NothingOfAWS": {
			reason: "all that is missing is named at once", cfg: noDefaults, claim: claim(`{}`),
			want: "spec.region is missing: no default region is configured" +
				"; spec.network.nodeCIDR is missing: the provider aws requires it and no default is configured" +
				"; spec.provider.infrastructureConfig is missing: the provider aws requires it and no default is configured" +
				`; node pool "default": spec.volume.type is missing: the provider aws requires it and no default is configured` +
				`; node pool "default": spec.zones is missing: the provider aws requires it and no default is configured for the region` +
				`; node pool "default": spec.machineType is missing: no default machine type is configured`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := c.cfg
			if cfg.ProviderType == "" {
				cfg = local()
			}
			got, err := newMaker(t, cfg).BuildManifest(c.claim)
			if err == nil {
				t.Fatalf("%s, but %+v was made", c.reason, got)
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestManyProblems: a message stays readable and can be stored for any spec.
func TestManyProblems(t *testing.T) {
	many := `{"labels":{"x":1},"zones":[1` + strings.Repeat(",1", 19) + `]}`
	_, err := newMaker(t, local()).BuildManifest(claim(`{}`, "a", many))
	if err == nil || !strings.HasSuffix(err.Error(), "; and 13 more") {
		t.Errorf("21 problems are told as %v", err)
	}
	_, err = newMaker(t, local()).BuildManifest(claim(`{}`, "a", `{"labels":{"`+strings.Repeat(`é\u0000`, 5000)+`":1}}`))
	if err == nil || len(err.Error()) > 2100 || !utf8.ValidString(err.Error()) || strings.Contains(err.Error(), "\x00") {
		t.Errorf("the database would not take %q", err)
	}
}

// FuzzMake: no spec breaks the decoder, and an accepted spec always marshals to the
// same bytes, with a worker that Gardener could accept.
func FuzzMake(f *testing.F) {
	f.Add(`{}`, "workers", `{"replicas":3}`)
	f.Add(`{"region":"r","kubernetes":{"version":"1.34"},"network":{"nodeCIDR":"10.0.0.0/8"}}`, "a", `{"autoscaling":{"min":1,"max":2}}`)
	f.Add(`{"provider":{"infrastructureConfig":{"a":[1e400,{"b":null}]}}}`, "a", `{"labels":{"a":"b"},"taints":[{"key":"k","effect":"NoExecute"}],"zones":["z"]}`)
	f.Add(`{"network":{"nodeCIDR":"::/0"}}`, "", `[{}]`)
	f.Add("{\"region\":\"\xff\"}", "\x00", ``)
	f.Fuzz(func(t *testing.T, spec, pool, poolSpec string) {
		for _, cfg := range []manifest.Config{local(), aws()} {
			m := newMaker(t, cfg)
			c := claim(spec, pool, poolSpec)
			got, err := m.BuildManifest(c)
			if err != nil {
				if text := err.Error(); text == "" || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
					t.Fatalf("the message %q can not be stored", text)
				}
				continue
			}
			text, err := json.Marshal(got)
			if err != nil || !json.Valid(text) {
				t.Fatalf("%+v marshals to %s, %v", got, text, err)
			}
			again, err := m.BuildManifest(c)
			if err != nil {
				t.Fatalf("the second time it is refused: %v", err)
			}
			if same, _ := json.Marshal(again); string(same) != string(text) {
				t.Fatalf("the same cluster is\n%s\nand then\n%s", text, same)
			}
			w := got.Spec.Provider.Workers[0]
			if w.Name != pool || w.Minimum < 0 || w.Maximum < max(w.Minimum, 1) || w.Machine.Type == "" || got.Spec.Region == "" {
				t.Fatalf("Gardener would not take %s", text)
			}
		}
	})
}
