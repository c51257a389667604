// Package deploy renders what is shipped beside the binaries, the chart and
// the kustomization, for the tests in this module.
//
// The module is apart from the product's own because Helm, Kustomize and
// Prometheus bring many packages that no binary of the product needs.
package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// A Release is a rendering of the chart. The zero value is the default one:
// release "fleetloop" in the namespace "hyperfleet-system".
type Release struct {
	Chart       string         // folder of the chart
	Name        string         // "" is fleetloop
	Namespace   string         // "" is hyperfleet-system
	Values      map[string]any // beside the chart's own
	APIVersions []string       // kinds that the cluster has beside the usual, as group/version/Kind
}

// Render gives the objects of the release, its hooks first, in the order in
// which Helm installs them, without the definitions in crds/, and the notes for
// the user. Errors are Helm's own, as its users see them.
func (r Release) Render() (objects []*unstructured.Unstructured, notes string, err error) {
	chart, err := loader.LoadDir(r.Chart)
	if err != nil {
		return nil, "", fmt.Errorf("load chart: %w", err)
	}
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	install := action.NewInstall(cfg)
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName = or(r.Name, "fleetloop")
	install.Namespace = or(r.Namespace, "hyperfleet-system")
	install.APIVersions = r.APIVersions
	install.KubeVersion = &common.KubeVersion{Version: "v1.37.1", Major: "1", Minor: "37"}
	values := r.Values
	if values == nil {
		values = map[string]any{}
	}
	out, err := install.Run(chart, values)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // seen as it is by the tests of its words
	}
	done, ok := out.(*release.Release)
	if !ok {
		return nil, "", fmt.Errorf("render chart: a %T came back", out)
	}
	var manifest strings.Builder
	for _, hook := range done.Hooks {
		manifest.WriteString(hook.Manifest + "\n---\n")
	}
	manifest.WriteString(done.Manifest)
	if objects, err = ParseObjects([]byte(manifest.String())); err != nil {
		return nil, "", err
	}
	return objects, done.Info.Notes, nil
}

// ParseObjects reads the objects of a file of YAML documents.
func ParseObjects(raw []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("read object %d: %w", len(objects)+1, err)
		case len(o.Object) > 0:
			objects = append(objects, o)
		}
	}
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
