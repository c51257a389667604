package gardener

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// labelProject is on the namespace of a project.
const labelProject = "project.gardener.cloud/name"

// project asks the namespace, then the projects, and guesses where it may ask
// neither.
func (c *Client) project(ctx context.Context) (string, error) {
	labels, err := c.namespaceLabels(ctx)
	if err != nil && !hasCode(err, http.StatusForbidden) {
		return "", err
	}
	if name := labels[labelProject]; name != "" {
		return name, nil
	}
	a, err := c.send(ctx, request{method: http.MethodGet, path: projects, unlimited: true})
	if err != nil && shoot.ClassOf(explain(err, "")) == shoot.ClassUnavailable && !hasCode(err, http.StatusNotFound) {
		return "", err
	}
	var all struct {
		Items []struct {
			Metadata meta `json:"metadata"`
			Spec     struct {
				Namespace string `json:"namespace"`
			} `json:"spec"`
		} `json:"items"`
	}
	if err == nil {
		if err := decode(a, &all); err != nil {
			return "", err
		}
	}
	for _, p := range all.Items {
		if p.Spec.Namespace == c.namespace {
			return p.Metadata.Name, nil
		}
	}
	return cmp.Or(strings.TrimPrefix(c.namespace, "garden-"), c.namespace), nil
}
