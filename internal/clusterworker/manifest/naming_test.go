package manifest_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
)

const namedClusterID = "0b7e3c52-5d1b-4a35-9d39-0f6f2f0f6a01"

func TestNameLimit(t *testing.T) {
	cases := map[string]struct {
		reason     string
		configured int
		project    string
		want       int
		says       string
	}{
		"Default":        {reason: "Gardener's rule counts the project's name, too", configured: 21, project: "fundament", want: 12},
		"LongestProject": {reason: "Gardener has no longer names of projects", configured: 63, project: "tenletters", want: 11},
		"Configured":     {reason: "what is configured is never exceeded", configured: 8, project: "dev", want: 8},
		"NoProject":      {reason: "without a project's name its part is free", configured: 63, project: "", want: 21},
		"HashAlone":      {reason: "the hash tells clusters apart all by itself", configured: 6, project: "dev", want: 6},
		"Zero":           {reason: "nobody can want that", configured: 0, project: "dev", says: "1 to 63, not 0"},
		"Negative":       {reason: "nor that", configured: -1, project: "dev", says: "1 to 63, not -1"},
		"TooMany":        {reason: "a name is a DNS label", configured: 64, project: "dev", says: "1 to 63, not 64"},
		"TooFew":         {reason: "without a hash clusters would share names", configured: 5, project: "dev", says: "set it to 6 or more"},
		"NothingLeft":    {reason: "the project has to change", configured: 21, project: "sixteen-letters-", says: "leaves 5 of 21 characters"},
		"LessThanNothing": {
			reason: "a negative number would help nobody", configured: 21, project: strings.Repeat("p", 40), says: "leaves 0 of 21 characters",
		},
		"JustEnough": {reason: "the message's advice works", configured: 21, project: "fifteen-letters", want: 6},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := manifest.ResolveNameLimit(c.configured, c.project)
			if got != c.want || (err == nil) != (c.says == "") {
				t.Fatalf("%s: Limit is %d, %v; want %d", c.reason, got, err, c.want)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %q does not say %q", c.reason, err, c.says)
			}
		})
	}
}

func TestShootName(t *testing.T) {
	cases := map[string]struct {
		reason  string
		cluster string
		n       int
		limit   int
		want    string
	}{
		"Usual":        {reason: "the name is recognised, the hash tells it apart", cluster: "eu-west-03", limit: 12, want: "eu-we-oyldub"},
		"Roomy":        {reason: "more room is used for both", cluster: "eu-west-03", limit: 21, want: "eu-west-03-oyldubve"},
		"JustRoomy":    {reason: "from here on the long hash leaves seven characters of the name", cluster: "eu-west-03", limit: 16, want: "eu-west-oyldubve"},
		"NotRoomy":     {reason: "the name matters more than the hash", cluster: "eu-west-03", limit: 15, want: "eu-west-oyldub"},
		"Label":        {reason: "a DNS label ends at 63, whatever the limit is", cluster: strings.Repeat("x", 70), limit: 80, want: strings.Repeat("x", 54) + "-oyldubve"},
		"NextChoice":   {reason: "after a collision only the hash is another", cluster: "eu-west-03", n: 1, limit: 12, want: "eu-we-hviqm7"},
		"CutAtHyphen":  {reason: "there are no two hyphens in a row", cluster: "abcd-efgh", limit: 12, want: "abcd-oyldub"},
		"Digit":        {reason: "a name begins with a letter", cluster: "2024", limit: 21, want: "c2024-oyldubve"},
		"Hyphens":      {reason: "Gardener takes no two hyphens in a row", cluster: "a--b---c", limit: 21, want: "a-b-c-oyldubve"},
		"NothingValid": {reason: "without a readable part there is the hash", cluster: "---", limit: 21, want: "oyldubve"},
		"Foreign":      {reason: "whatever is not ASCII separates", cluster: "Köln Süd", limit: 21, want: "k-ln-s-d-oyldubve"},
		"HashAlone":    {reason: "there is no room for more", cluster: "eu-west-03", limit: 7, want: "oyldub"},
		"OneLetter":    {reason: "a letter and a hyphen need two", cluster: "eu-west-03", limit: 8, want: "e-oyldub"},
		"DigitAlone":   {reason: "the hash alone begins with a letter, too", cluster: "eu-west-03", n: 4, limit: 6, want: "dshcyk"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := manifest.DeriveShootName(c.cluster, namedClusterID, c.n, c.limit)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

func wantValidName(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, name string, limit int,
) {
	t.Helper()
	if !dnsLabel.MatchString(name) || strings.Contains(name, "--") || len(name) > limit || len(name) > manifest.MaxNameLength {
		t.Fatalf("%q is no name for a Shoot of at most %d characters", name, limit)
	}
}

// TestNamesAreValidAndStable: every cluster name gives a Shoot name that Gardener
// accepts, always the same for the same cluster.
func TestNamesAreValidAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?`)).Draw(t, "cluster")
		clusterID, n := rapid.String().Draw(t, "id"), rapid.IntRange(0, 1000).Draw(t, "n")
		limit := rapid.IntRange(manifest.MinNameLimit, 80).Draw(t, "limit")
		name := manifest.DeriveShootName(cluster, clusterID, n, limit)
		wantValidName(t, name, limit)
		if again := manifest.DeriveShootName(cluster, clusterID, n, limit); again != name {
			t.Fatalf("%q is called %q the second time", name, again)
		}
	})
}

// TestNamesAreDistinct: clusters with the same name, names with the same prefix, and the
// choices of one cluster get distinct names.
func TestNamesAreDistinct(t *testing.T) {
	for _, limit := range []int{manifest.MinNameLimit, 11, 12, 15, 16, 21, 63} {
		seen := map[string]string{}
		for i := range 500 {
			for _, cluster := range []string{"the-same-name", fmt.Sprintf("a-prefix-of-thirty-characters-%d", i)} {
				for n := range 2 {
					whose := fmt.Sprintf("choice %d of %s of cluster %d", n, cluster, i)
					// The ids are fixed and known not to collide.
					name := manifest.DeriveShootName(cluster, fmt.Sprintf("%08x-0000-4000-8000-%s", i, cluster), n, limit)
					wantValidName(t, name, limit)
					if other, ok := seen[name]; ok {
						t.Fatalf("with %d characters %q is %s and %s", limit, name, whose, other)
					}
					seen[name] = whose
				}
			}
		}
	}
}

// TestNameLimitTooShort: a limit that ResolveNameLimit rejects is a programming error.
func TestNameLimitTooShort(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a name of five characters was made")
		}
	}()
	manifest.DeriveShootName("eu-west-03", namedClusterID, 0, manifest.MinNameLimit-1)
}

func FuzzShootName(f *testing.F) {
	f.Add("eu-west-03", namedClusterID, 0, 12)
	f.Add("--", "", 7, 6)
	f.Add("9\xff9", namedClusterID, 1, 63)
	f.Fuzz(func(t *testing.T, cluster, clusterID string, n, limit int) {
		if limit < manifest.MinNameLimit {
			t.Skip("Limit refuses that")
		}
		wantValidName(t, manifest.DeriveShootName(cluster, clusterID, n, limit), limit)
	})
}
