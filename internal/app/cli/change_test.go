package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

const twoDocuments = `
kind: Cluster
name: c9
labels: {region: eu, on: yes}
spec:
  version: 1.30
  since: 2026-03-01
  ports: {80: http}
---
# the second
kind: nodepool
metadata: {name: gpu, displayName: GPUs}
cluster: c9
spec: &s {replicas: 3, big: 12345678901234567890}
`

// TestChange verifies the requests and the output of commands that change resources.
func TestChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("fleet/1.yaml", "kind: Cluster\nname: a1\n")
	write("fleet/2.json", `{"kind":"Cluster","name":"a2","spec":{"n":1.50}}`)
	write("fleet/notes.txt", "not one of ours")
	declared := write("c1.yaml", "kind: Cluster\nname: c1\nlabels: {a: b}\nspec: {n: 1}\n")
	np := v1.CollectionClusters + "/" + testID(5) + "/nodepools"

	cases := map[string]struct {
		reason string
		run    run
		sent   []string
		stdout string
		code   int
		says   string
	}{
		"CreateTwo": {
			"a parent may stand before its child in one file",
			run{args: []string{"create", "-f", "-"}, stdin: twoDocuments},
			[]string{
				`POST clusters {"kind":"Cluster","name":"c9","labels":{"on":"yes","region":"eu"},"spec":{"ports":{"80":"http"},"since":"2026-03-01","version":1.3}}`,
				`POST ` + np + ` {"kind":"NodePool","name":"gpu","metadata":{"name":"gpu","displayName":"GPUs"},"spec":{"big":12345678901234567890,"replicas":3}}`,
			},
			"cluster/c9 created\nnodepool/c9/gpu created\n", CodeOK, "",
		},
		"CreateFolder": {
			"every file of ours in it",
			run{args: []string{"create", "-f", filepath.Join(dir, "fleet"), "-o", "name"}},
			[]string{`POST clusters {"kind":"Cluster","name":"a1","spec":{}}`, `POST clusters {"kind":"Cluster","name":"a2","spec":{"n":1.50}}`},
			"cluster/a1\ncluster/a2\n", CodeOK, "",
		},
		"CreateSome": {
			"the rest is created",
			run{args: []string{"create", "-f", "-"}, stdin: "kind: Cluster\nname: c1\n---\nkind: Cluster\nname: c8\n"},
			[]string{`POST clusters {"kind":"Cluster","name":"c1","spec":{}}`, `POST clusters {"kind":"Cluster","name":"c8","spec":{}}`},
			"cluster/c8 created\n", CodePartial, `create cluster "c1" (-:1): POST /clusters: 409 Conflict: the name "c1" is taken`,
		},
		"CreateTaken": {
			"nothing was done",
			run{args: []string{"create", "-f", "-"}, stdin: "kind: Cluster\nname: c1\n"},
			[]string{`POST clusters {"kind":"Cluster","name":"c1","spec":{}}`},
			"", CodePrecondition, "is taken",
		},
		"CreateOrphan": {
			"the parent is not there",
			run{args: []string{"create", "-f", "-"}, stdin: "kind: NodePool\nname: a\ncluster: nope\n"},
			nil, "", CodePrecondition, `find cluster "nope": not found`,
		},
		"CreateBad": {
			"all are checked before the first is created",
			run{args: []string{"create", "-f", "-"}, stdin: "kind: Cluster\nname: c8\n---\nkind: Cluster\nnaem: c9\n"},
			nil, "", CodeUsage, `-:4: unknown field "naem"`,
		},
		"CreateNoFile":  {"which file", run{args: []string{"create"}}, nil, "", CodeUsage, "with -f; - is standard input"},
		"CreateMissing": {"no such file", run{args: []string{"create", "-f", filepath.Join(dir, "none")}}, nil, "", CodeUsage, "no such file"},
		"CreateEmpty":   {"nothing in it", run{args: []string{"create", "-f", "-"}, stdin: "---\n# nothing\n"}, nil, "", CodeUsage, "contains no resource"},
		"PatchSpec": {
			"what is not named stays",
			run{args: []string{"patch", "cluster", "c1", "--spec", `{"replicas":5,"version":null}`}},
			[]string{`PATCH clusters/` + testID(1) + ` {"spec":{"replicas":5}}`},
			"cluster/c1 patched\n", CodeOK, "",
		},
		"PatchLabels": {
			"labels one by one",
			run{args: []string{"patch", "cluster", "c1", "--label", "env=dev", "--label", "tier-"}},
			[]string{`PATCH clusters/` + testID(1) + ` {"labels":{"env":"dev","region":"us-east"}}`},
			"cluster/c1 patched\n", CodeOK, "",
		},
		"Label": {
			"the same in short",
			run{args: []string{"label", "cluster", "c1", "env=dev", "tier-", "-o", "name"}},
			[]string{`PATCH clusters/` + testID(1) + ` {"labels":{"env":"dev","region":"us-east"}}`},
			"cluster/c1\n", CodeOK, "",
		},
		"LabelChild": {
			"kind and name in one",
			run{args: []string{"label", "nodepool/c2/workers", "a="}},
			[]string{`PATCH nodepools/` + testID(4) + ` {"labels":{"a":""}}`},
			"nodepool/c2/workers patched\n", CodeOK, "",
		},
		"PatchFile": {
			"exactly what the file says",
			run{args: []string{"patch", "-f", declared}},
			[]string{`PATCH clusters/` + testID(1) + ` {"spec":{"n":1},"labels":{"a":"b"}}`},
			"cluster/c1 patched\n", CodeOK, "",
		},
		"PatchTypo":      {"nothing was sent", run{args: []string{"patch", "clusters", "c1", "nope", "--label", "a=b"}}, nil, "", CodePrecondition, `find cluster "nope": not found`},
		"PatchNothing":   {"say what", run{args: []string{"patch", "cluster", "c1"}}, nil, "", CodeUsage, "give the change with"},
		"PatchNobody":    {"say which", run{args: []string{"patch", "clusters", "--label", "a=b"}}, nil, "", CodeUsage, "give the clusters"},
		"PatchNoObject":  {"a spec is an object", run{args: []string{"patch", "cluster", "c1", "--spec", "[1]"}}, nil, "", CodeUsage, "not a JSON object such as {\"key\": \"value\"}"},
		"PatchNull":      {"a spec is not removed", run{args: []string{"patch", "cluster", "c1", "--spec", "null"}}, nil, "", CodeUsage, "not a JSON object such as {\"key\": \"value\"}"},
		"PatchBoth":      {"one or the other", run{args: []string{"patch", "-f", declared, "--label", "a=b"}}, nil, "", CodeUsage, "-f cannot be combined"},
		"LabelNothing":   {"say which", run{args: []string{"label", "cluster", "c1"}}, nil, "", CodeUsage, "and the labels to set"},
		"LabelNonsense":  {"neither set nor removed", run{args: []string{"label", "cluster", "c1", "a"}}, nil, "", CodeUsage, `"a" is not key=value`},
		"LabelTwice":     {"which of the two", run{args: []string{"label", "cluster", "c1", "a=b", "a-"}}, nil, "", CodeUsage, "given only once"},
		"LabelBadFormat": {"no such format", run{args: []string{"label", "cluster", "c1", "a=b", "-o", "wide"}}, nil, "", CodeUsage, "unknown output format"},
		"Delete": {
			"it is asked for",
			run{args: []string{"delete", "cluster", "c1"}},
			[]string{"DELETE clusters/" + testID(1)},
			"cluster/c1 deletion requested\n", CodeOK, "",
		},
		"DeleteSelected": {
			"all that match",
			run{args: []string{"delete", "clusters", "-l", "tier=gold", "-y"}},
			[]string{"DELETE clusters/" + testID(1)},
			"cluster/c1 deletion requested\n", CodeOK, "",
		},
		"DeleteAll": {
			"when it is said so",
			run{args: []string{"delete", "nodepools", "--all"}, stdin: "y\n", answers: true},
			[]string{"DELETE nodepools/" + testID(3), "DELETE nodepools/" + testID(4)},
			"nodepool/c1/workers deletion requested\nnodepool/c2/workers deletion requested\n", CodeOK,
			"Delete 2 resources (nodepool/c1/workers, nodepool/c2/workers)? [y/N] ",
		},
		"DeleteFile": {
			"what a file describes",
			run{args: []string{"delete", "-f", declared}},
			[]string{"DELETE clusters/" + testID(1)},
			"cluster/c1 deletion requested\n", CodeOK, "",
		},
		"DeleteDeclined": {"the end of the input means no", run{args: []string{"delete", "clusters", "-l", "tier=gold"}, answers: true}, nil, "", CodeFailed, "Delete 1 resource (cluster/c1)? [y/N] error: not confirmed, so nothing was deleted\nnext:  run the command again and answer y, or give --yes"},
		"DeleteInScript": {"nobody can answer", run{args: []string{"delete", "clusters", "-l", "tier=gold"}, stdin: "y\n"}, nil, "", CodeUsage, "error: no terminal for the confirmation prompt\nnext:  --dry-run shows what would be deleted; --yes deletes it without a prompt"},
		"DeleteNames":    {"for other commands", run{args: []string{"delete", "cluster", "c1", "-o", "name"}}, []string{"DELETE clusters/" + testID(1)}, "cluster/c1\n", CodeOK, ""},
		"LabelSelected":  {"all that match", run{args: []string{"label", "clusters", "-l", "tier=gold", "a=b"}}, []string{`PATCH clusters/` + testID(1) + ` {"labels":{"a":"b","region":"us-east","tier":"gold"}}`}, "cluster/c1 patched\n", CodeOK, ""},
		"PatchSelected":  {"likewise", run{args: []string{"patch", "np", "--search", "name = 'workers'", "--spec", `{"replicas":9}`, "-o", "name"}}, []string{`PATCH nodepools/` + testID(3) + ` {"spec":{"replicas":9,"version":"1.30"}}`, `PATCH nodepools/` + testID(4) + ` {"spec":{"replicas":9,"version":"1.30"}}`}, "nodepool/" + testID(3) + "\nnodepool/" + testID(4) + "\n", CodeOK, ""},
		"PatchNone":      {"of which", run{args: []string{"patch", "np", "--spec", `{}`}}, nil, "", CodeUsage, "or with -l"},
		"DeleteTypo":     {"nothing was deleted", run{args: []string{"delete", "cluster/c1", "cluster/nope"}}, nil, "", CodePrecondition, "not found"},
		"DeleteNone":     {"to delete nothing is a mistake", run{args: []string{"delete", "clusters", "-l", "a=b", "-y"}}, nil, "", CodePrecondition, "no clusters match"},
		"DeleteKind":     {"not by accident", run{args: []string{"delete", "clusters"}}, nil, "", CodeUsage, "--all"},
		"DeleteFileName": {"one or the other", run{args: []string{"delete", "-f", declared, "cluster", "c1"}}, nil, "", CodeUsage, "cannot be combined"},
		"DeleteTimeout":  {"a wait has an end", run{args: []string{"delete", "cluster", "c1", "--timeout", "0"}}, nil, "", CodeUsage, "positive"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet()
			got := tc.run.runCLI(t, f)
			if diff := cmp.Diff(tc.sent, f.sentRequests()); diff != "" && len(tc.sent)+len(f.sentRequests()) > 0 {
				t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
			}
			if got.stdout != tc.stdout || got.code != tc.code || !strings.Contains(got.stderr, tc.says) || tc.says == "" && got.stderr != "" {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q\nwant %d, %q, %q", tc.reason, got.code, got.stdout, got.stderr, tc.code, tc.stdout, tc.says)
			}
		})
	}
}

// TestOutputCanBeGivenBack copies a fleet from one server to another.
func TestOutputCanBeGivenBack(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "yaml"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			from := newFleet()
			from.items[0].Spec = []byte(`{"odd":"yes","date":"2026-01-01","text":"a\nb\n","n":12345678901234567,"none":null,"f":1e3}`)
			clusters := run{args: []string{"get", "clusters", "-o", format}}.runCLI(t, from)
			to := &fakeAPI{}
			got := run{args: []string{"create", "-f", "-"}, stdin: clusters.stdout}.runCLI(t, to)
			if got.code != 0 || len(to.items) != 2 {
				t.Fatalf("exit code %d, %d clusters, %s", got.code, len(to.items), got.stderr)
			}
			want, err := resource.JSONToYAML(from.items[0].Spec)
			if err != nil {
				t.Fatal(err)
			}
			copied, err := resource.JSONToYAML(to.items[0].Spec)
			if err != nil {
				t.Fatal(err)
			}
			if sortLines(string(want)) != sortLines(strings.Replace(string(copied), "f: 1000", "f: 1e3", 1)) {
				t.Errorf("spec\n%s\nbecame\n%s", want, copied)
			}
			if diff := cmp.Diff(from.items[0].Labels, to.items[0].Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func sortLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		for j := i; j < len(lines); j++ {
			if lines[j] < lines[i] {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
	return strings.Join(lines, "\n")
}

func TestPartialFailures(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"delete", "clusters", "c1", "c2"},
		{"patch", "clusters", "c1", "c2", "--label", "a=b"},
	} {
		f := newFleet()
		f.before = func(r *http.Request) (int, any) {
			if r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, testID(2)) {
				return http.StatusConflict, v1.Problem{Detail: "it is being deleted"}
			}
			return 0, nil
		}
		got := run{args: args}.runCLI(t, f)
		if got.code != CodePartial || strings.Count(got.stdout, "\n") != 1 || !strings.Contains(got.stderr, args[0]+" cluster/c2: ") {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, got.code, got.stdout, got.stderr)
		}
	}
}

// TestPatchLosesNoOtherEdit changes the same resource between the read and the patch of a command.
func TestPatchLosesNoOtherEdit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		others int // edits by others
		code   int
	}{
		"Quiet": {"nobody else", 0, CodeOK},
		"Busy":  {"it is done anew on what others made of it", maxTries - 1, CodeOK},
		"Storm": {"it is given up", maxTries, CodePrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet()
			f.tags = map[string]int{}
			left := tc.others
			f.before = func(r *http.Request) (int, any) {
				if r.Method == http.MethodPatch && left > 0 {
					left--
					f.tags[testID(1)]++
					f.items[0].Labels["other"] = strconv.Itoa(left)
				}
				return 0, nil
			}
			got := run{args: []string{"label", "cluster", "c1", "mine=yes"}}.runCLI(t, f)
			if got.code != tc.code {
				t.Fatalf("%s: exit code %d: %s", tc.reason, got.code, got.stderr)
			}
			if labels := f.items[0].Labels; tc.code == CodeOK && (labels["mine"] != "yes" || labels["region"] != "us-east" || tc.others > 0 && labels["other"] != "0") {
				t.Errorf("%s: labels %v", tc.reason, labels)
			}
		})
	}
}
