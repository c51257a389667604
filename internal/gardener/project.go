package gardener

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// labelProject is the label of the namespace of a project.
const labelProject = "project.gardener.cloud/name"

// findProjectName reads the project's name from the namespace, then from the projects. It
// guesses the name if neither is permitted.
func (c *Client) findProjectName(ctx context.Context) (string, error) {
	ns, err := c.readNamespace(ctx, false)
	if err != nil && !hasCode(err, http.StatusForbidden) {
		return "", err
	}
	if name := ns.Labels[labelProject]; name != "" {
		return name, nil
	}
	a, err := c.sendRequest(ctx, request{method: http.MethodGet, path: projects, unlimited: true})
	if err != nil && shoot.ClassOf(wrapWithClass(err, "")) == shoot.ClassUnavailable && !hasCode(err, http.StatusNotFound) {
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

// GardenIdentity returns the identity of the Shoots' location, by the namespace and its uid, so
// that it does not depend on the server's address. If this client may not read the
// namespace, the server's address identifies the location.
func (c *Client) GardenIdentity(ctx context.Context) (string, error) {
	ns, err := c.readNamespace(ctx, false)
	switch {
	case hasCode(err, http.StatusForbidden):
		if err := c.confirmNoAccess(ctx, err); err != nil {
			return "", wrapWithClass(err, "get the namespace of the Shoots")
		}
		return c.base.Host + "/" + c.namespace, nil
	case err != nil:
		return "", wrapWithClass(err, "get the namespace of the Shoots")
	}
	return c.namespace + " (" + ns.UID + ")", nil
}

// confirmNoAccess returns nil if this client has the permission to read Shoots, but not
// their namespace. Otherwise the refusal may end: an API server that has just started
// refuses requests until it has read its roles. Two processes must not record the same
// location under two identities.
func (c *Client) confirmNoAccess(ctx context.Context, refusal error) error {
	mayReadNamespace, err := c.reviewAccess(ctx, map[string]string{"namespace": c.namespace, "verb": "get", "version": "v1", "resource": "namespaces", "name": c.namespace})
	if err != nil {
		return err
	}
	mayReadShoots, err := c.reviewAccess(ctx, map[string]string{"namespace": c.namespace, "verb": "get", "group": "core.gardener.cloud", "version": "v1beta1", "resource": "shoots"})
	if err != nil {
		return err
	}
	if mayReadNamespace || !mayReadShoots {
		return refusal
	}
	return nil
}
