package resource

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func kindNamed(t *testing.T, name string) Kind {
	t.Helper()
	k, err := ParseKind(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKinds(t *testing.T) {
	t.Parallel()
	cluster, pool := kindNamed(t, "C"), kindNamed(t, "NodePool")
	if pool.Parent() != cluster || !pool.IsChild() || cluster.IsChild() || cluster.Parent() != (Kind{}) {
		t.Error("parents are wrong")
	}
	if diff := cmp.Diff([]Kind{pool}, cluster.Children(), cmp.AllowUnexported(Kind{})); diff != "" || len(pool.Children()) != 0 {
		t.Errorf("children (-want +got):\n%s", diff)
	}
	seen := map[string]bool{}
	for _, k := range Kinds() {
		for _, name := range []string{k.Collection, k.Singular, k.short} {
			if name != "" && seen[name] {
				t.Errorf("two kinds are called %q", name)
			}
			seen[name] = true
		}
	}
	if _, err := ParseKind(""); err == nil {
		t.Error("a kind without a name was found")
	}
}

func TestParseRefs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   string
		parent string
		want   string
		err    string
	}{
		"All":         {"every one of a kind", "clusters", "", `clusters`, ""},
		"Names":       {"some of a kind", "c a b", "", `clusters cluster "a" cluster "b"`, ""},
		"Slash":       {"kind and name in one", "cluster/a nodepool/b", "", `clusters cluster "a" nodepool "b"`, ""},
		"Child":       {"with its parent", "np a/b", "", `nodepools nodepool "a/b"`, ""},
		"ChildSlash":  {"all in one", "np/a/b", "", `nodepools nodepool "a/b"`, ""},
		"ParentGiven": {"for all of them", "np b c", "a", `nodepools nodepool "a/b" nodepool "a/c"`, ""},
		"Nothing":     {"say what", "", "", "", "give a resource kind"},
		"NoKind":      {"say what", "pods", "", "", "use one of clusters, nodepools"},
		"NoKindSlash": {"say what", "pods/a", "", "", "unknown resource kind"},
		"Mixed":       {"one form or the other", "cluster/a b", "", "", "not of the form kind/name"},
		"NoName":      {"which", "cluster/", "", "", "not a valid name or id"},
		"NoParent":    {"whose", "np /b", "", "", "lacks the name of its cluster"},
		"TooDeep":     {"of whom", "np a/b/c", "", "", "not a valid name or id"},
		"TwoParents":  {"whose", "np a/b", "c", "", "names a parent"},
		"NoChild":     {"nobody's", "cluster a/b", "", "", "has no parent"},
	}
	for name, tc := range cases {
		k, refs, err := ParseRefs(strings.Fields(tc.args), tc.parent)
		got := k.Collection
		for _, r := range refs {
			got += " " + r.String()
		}
		if tc.err == "" && (err != nil || got != tc.want) || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %s: got %s, err %v, want %s, %q", name, tc.reason, got, err, tc.want, tc.err)
		}
	}
}

func TestQuoteLiteral(t *testing.T) {
	t.Parallel()
	if got := quoteLiteral("a'b''"); got != "'a''b'''''" {
		t.Errorf("got %s", got)
	}
	if NamePrefixSearch("") != "" || NamePrefixSearch("a'") != "name like 'a''%'" {
		t.Error("prefix")
	}
	const id = "019a0000-0000-7000-8000-000000000001"
	for text, want := range map[string]bool{
		id: true, strings.ToUpper(id): true, id[1:]: false, id + "0": false, strings.ReplaceAll(id, "-", ""): false,
		"{" + id[1:35] + "}": false, strings.Replace(id, "0", "g", 1): false, strings.Repeat("a", 36): false,
	} {
		if isUUID(text) != want {
			t.Errorf("isID(%q) is %t", text, !want)
		}
	}
}
