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

// findProject asks the namespace, then the projects, and guesses where it may ask
// neither.
func (c *Client) findProject(ctx context.Context) (string, error) {
	ns, err := c.ourNamespace(ctx, false)
	if err != nil && !hasCode(err, http.StatusForbidden) {
		return "", err
	}
	if name := ns.Labels[labelProject]; name != "" {
		return name, nil
	}
	a, err := c.sendRequest(ctx, request{method: http.MethodGet, path: projects, unlimited: true})
	if err != nil && shoot.ClassOf(wrapRefusal(err, "")) == shoot.ClassUnavailable && !hasCode(err, http.StatusNotFound) {
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
		if err := decodeObject(a, &all); err != nil {
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

// Garden names where the Shoots are, in the same words whatever the server is
// called just now: by the namespace and its uid. Where we may not look at that it
// is named by the server's address.
func (c *Client) Garden(ctx context.Context) (string, error) {
	ns, err := c.ourNamespace(ctx, false)
	switch {
	case hasCode(err, http.StatusForbidden):
		return c.base.Host + "/" + c.namespace, nil
	case err != nil:
		return "", wrapRefusal(err, "get the namespace of the Shoots")
	}
	return c.namespace + " (" + ns.UID + ")", nil
}
