// Package deploy renders what is shipped beside the binaries, the chart and
// the kustomization, for the tests in this module.
//
// The module is apart from the product's own because Helm, Kustomize and
// Prometheus bring many packages that no binary of the product needs.
package deploy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

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
	r.Name, r.Namespace = cmp.Or(r.Name, "fleetloop"), cmp.Or(r.Namespace, "hyperfleet-system")
	if r.Values == nil {
		r.Values = map[string]any{}
	}
	answer, err := sendToRenderer(Request{Release: r})
	if err != nil {
		return nil, "", err
	}
	return answer.unstructuredObjects(), answer.Notes, nil
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
