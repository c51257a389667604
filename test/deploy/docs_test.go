package deploy_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/test/deploy"
)

// guides are the documents whose commands users paste, with their text.
func guides(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"README.md", "docs/tutorial/*.md", "docs/how-to/*.md", "docs/runbooks/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("nothing matches %s: %v", pattern, err)
		}
		for _, file := range files {
			texts[strings.TrimPrefix(file, root+"/")] = string(readFile(t, file))
		}
	}
	return texts
}

// chartNames are the names that stand in a rendering of the chart with all that
// it has: of objects, and of the Secrets that it expects.
func chartNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, o := range render(t, deploy.Release{
		APIVersions: append(monitored().APIVersions, servesStamps),
		Values: newValues(t, `
clusterWorker: {enabled: true}
executionController: {enabled: true}
nodeFaultController: {enabled: true, budget: {on_exhausted: manual-reset}, janitor: {separate: true}}
console: {enabled: true, publicURL: 'https://fleet.example.com', auth: {mode: oidc, oidc: {issuer: 'https://login.example.com', clientID: a, clientSecretRef: {name: fleetloop-console-oidc}}}, hosts: [{name: eu, kubeconfigSecretRef: {name: console-host-eu, key: config}}, {name: local}], ingress: {enabled: true}}
monitoring: {dashboards: {enabled: true}}
`),
	}) {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Service" {
			names["service "+o.GetName()] = true
		}
		for _, name := range regexp.MustCompile(`[a-z0-9]([a-z0-9.-]*[a-z0-9])?`).FindAllString(string(text), -1) {
			names[name] = true
		}
	}
	return names
}

// TestDocsNameWhatThereIs: an object of Kubernetes that a command of the guides
// names by our prefix is one that the chart makes or expects, and a file of the
// folder deploy that they name is there.
func TestDocsNameWhatThereIs(t *testing.T) {
	// Names that something else makes: a running controller, or the reader.
	others := []string{
		"fleetloop-node-fault-budget",             // a Lease of the controller
		"fleetloop-execution-controller-68c48bf7", // begins the name of a Pod
		"fleetloop-cluster-worker-garden",         // a Role in the garden
		"fleetloop-demo", "fleetloop-kubebed",     // folders of a demo
		"fleetloop-up",     // a program
		"fleetloop-system", // a namespace of the reader's own
	}
	ours := regexp.MustCompile(`\bfleetloop-[a-z0-9]+(-[a-z0-9]+)*`)
	hosts := regexp.MustCompile(`//([a-z0-9-]+)\.hyperfleet-system\b`)
	refs := regexp.MustCompile(`SecretRef: \{name: ([a-z-]+)`)
	files := regexp.MustCompile(`(?:^|[ \x60(/])((?:bin/)?deploy/(?:chart|crds|dashboards|gardener|admission-policies|kustomize|policies|prometheus|rbac|sentinel)[A-Za-z0-9_./-]*)`)
	names := chartNames(t)
	texts := guides(t)
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		if file == "docs/how-to/connect-to-hyperfleet.md" {
			continue // it is about the objects of another system
		}
		for i, line := range strings.Split(texts[file], "\n") {
			for _, name := range ours.FindAllString(line, -1) {
				if !names[name] && !slices.ContainsFunc(others, func(o string) bool { return strings.HasPrefix(name, o) }) {
					t.Errorf("%s:%d: there is no %s in the chart", file, i+1, name)
				}
			}
			for _, m := range hosts.FindAllStringSubmatch(line, -1) {
				if !names["service "+m[1]] {
					t.Errorf("%s:%d: the chart makes no Service %s", file, i+1, m[1])
				}
			}
			for _, m := range refs.FindAllStringSubmatch(line, -1) {
				if !names[m[1]] && !strings.HasPrefix(m[1], "bmc-") {
					t.Errorf("%s:%d: the chart neither makes nor expects %s", file, i+1, m[1])
				}
			}
			for _, m := range files.FindAllStringSubmatch(line, -1) {
				path := strings.TrimRight(strings.TrimPrefix(m[1], "bin/"), ".")
				if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Errorf("%s:%d: %v", file, i+1, err)
				}
			}
		}
	}
}

// TestRunbooksNeedNoShell: our images have no shell and no programs but our own,
// so a runbook reaches a port by way of kubectl, and runs nothing else in a Pod.
func TestRunbooksNeedNoShell(t *testing.T) {
	exec := regexp.MustCompile(`kubectl[^\x60]*\sexec\s[^\x60]*`)
	curl := regexp.MustCompile(`curl '?(?:http://)?(?:localhost|127\.0\.0\.1):(\d+)`)
	for file, text := range guides(t) {
		for i, line := range strings.Split(text, "\n") {
			for _, command := range exec.FindAllString(line, -1) {
				if !regexp.MustCompile(` -- /[a-z-]+`).MatchString(command) {
					t.Errorf("%s:%d: %q runs something else than our program", file, i+1, command)
				}
			}
			if !strings.HasPrefix(file, "docs/runbooks/") {
				continue
			}
			for _, m := range curl.FindAllStringSubmatch(line, -1) {
				if !regexp.MustCompile(`port-forward \S+ ` + m[1] + `\b`).MatchString(text) {
					t.Errorf("%s:%d: port %s is not forwarded: the Pod's localhost is not the reader's", file, i+1, m[1])
				}
			}
		}
	}
}
