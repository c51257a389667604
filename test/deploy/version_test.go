package deploy_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	manifests "github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// TestOneVersion: the manifests that "make images" writes beside the images name
// the images' version everywhere, by Helm and by Kustomize.
func TestOneVersion(t *testing.T) {
	for _, release := range []string{"dev", "1.2.3", "1.2.3-rc.1"} {
		t.Run(release, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "deploy")
			if err := manifests.WriteReleaseManifests(root+"/deploy", dir, release); err != nil {
				t.Fatal(err)
			}
			objects, notes, err := deploy.Release{
				Chart: dir + "/chart/fleetloop", APIVersions: append(monitored().APIVersions, servesStamps),
				Values: newValues(t, `{clusterWorker: {enabled: true}, executionController: {enabled: true}, nodeFaultController: {enabled: true, janitor: {separate: true}}, console: {enabled: true, publicURL: 'https://fleet.example.com'}, monitoring: {dashboards: {enabled: true}}}`),
			}.Render()
			if err != nil {
				t.Fatal(err)
			}
			if want := "Fleetloop " + release + " is installed in the namespace"; !regexp.MustCompile(regexp.QuoteMeta(want)).MatchString(notes) {
				t.Errorf("the notes do not say %q", want)
			}
			wantVersion(t, "chart", objects, release)
			for _, folder := range []string{"kustomize", "kustomize/execution-controller", "kustomize/node-fault-controller", "kustomize/console", "dashboards"} {
				built, err := deploy.Kustomize(filepath.Join(dir, folder))
				if err != nil {
					t.Fatal(err)
				}
				wantVersion(t, folder, built, release)
			}
			worker, err := deploy.ParseObjects(readFile(t, dir+"/kustomize/cluster-worker/cluster-worker.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			wantVersion(t, "kustomize/cluster-worker", worker, release)
		})
	}
}

// wantVersion compares the version in labels and images with the wanted one.
func wantVersion(t *testing.T, of string, objects []*unstructured.Unstructured, want string) {
	t.Helper()
	named := 0
	for _, o := range objects {
		what := fmt.Sprintf("%s: %s/%s", of, o.GetKind(), o.GetName())
		if got, ok := o.GetLabels()["app.kubernetes.io/version"]; ok {
			named++
			if got != want {
				t.Errorf("%s has the version %q, want %q", what, got, want)
			}
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, image := range regexp.MustCompile(`(?m)fleetloop/[a-z-]+:(\S+)$`).FindAllSubmatch(text, -1) {
			named++
			if string(image[1]) != want {
				t.Errorf("%s has the image %s, want the tag %q", what, image[0], want)
			}
		}
	}
	if named == 0 {
		t.Errorf("%s: no object has a version", of)
	}
}
