package gardener

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Paths of the requests.
const (
	shootsAPI   = "/apis/" + shoot.APIVersion
	bindingsAPI = "/apis/security.gardener.cloud/v1alpha1"
	reviewsPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	projects    = shootsAPI + "/projects"
)

// A shootNamespace is the namespace of the project's Shoots.
type shootNamespace struct {
	api    *transport
	name   string
	exists atomic.Bool // set once the namespace is known to exist
}

func (n *shootNamespace) shootListPath() string {
	return shootsAPI + "/namespaces/" + n.name + "/shoots"
}

func (n *shootNamespace) shootPath(shootName string) string {
	return n.shootListPath() + "/" + url.PathEscape(shootName)
}

// getShootInto reads the current Shoot of a name. It returns shoot.ErrNotFound for an absent Shoot.
func (n *shootNamespace) getShootInto(ctx context.Context, shootName string, into any) error {
	err := n.api.sendAndDecode(ctx, apiRequest{method: http.MethodGet, path: n.shootPath(shootName)}, into)
	if !isObjectNotFound(err, "shoots") {
		return err
	}
	// A missing namespace has no Shoots either. Taking that for a completed deletion
	// would mean to forget running clusters.
	if err := n.checkNamespaceExists(ctx, false); err != nil {
		return err
	}
	return shoot.ErrNotFound
}

// checkNamespaceExists returns an error if the namespace does not exist. It asks until it knows, or
// until the read is forbidden.
func (n *shootNamespace) checkNamespaceExists(ctx context.Context, withoutTimeout bool) error {
	if n.exists.Load() {
		return nil
	}
	_, err := n.getNamespaceMeta(ctx, withoutTimeout)
	if err != nil && !isMissingRight(err) {
		return err
	}
	n.exists.Store(true)
	return nil
}

// getNamespaceMeta reads the metadata of the namespace.
func (n *shootNamespace) getNamespaceMeta(ctx context.Context, withoutTimeout bool) (objectMeta, error) {
	var ns struct {
		Metadata objectMeta `json:"metadata"`
	}
	request := apiRequest{
		method:    http.MethodGet,
		path:      "/api/v1/namespaces/" + n.name,
		unlimited: true,
		patient:   withoutTimeout,
	}
	err := n.api.sendAndDecode(ctx, request, &ns)
	if isObjectNotFound(err, "namespaces") {
		err = shoot.NewClassErrorf(shoot.ClassUnavailable, "namespace %q not found", n.name)
	}
	return ns.Metadata, err
}

// labelProject is the label of the namespace of a project.
const labelProject = "project.gardener.cloud/name"

// findProjectName reads the project's name from the namespace, then from the projects. It
// guesses the name if neither is permitted.
func (n *shootNamespace) findProjectName(ctx context.Context) (projectName string, err error) {
	// From the label of the namespace.
	ns, err := n.getNamespaceMeta(ctx, false)
	if err != nil && !isMissingRight(err) {
		return "", err
	}
	if name := ns.Labels[labelProject]; name != "" {
		return name, nil
	}

	// From the project with this namespace.
	var all struct {
		Items []struct {
			Metadata objectMeta `json:"metadata"`
			Spec     struct {
				Namespace string `json:"namespace"`
			} `json:"spec"`
		} `json:"items"`
	}
	err = n.api.sendAndDecode(ctx, apiRequest{method: http.MethodGet, path: projects, unlimited: true}, &all)
	unavailable := err != nil && shoot.ClassOf(wrapWithErrorClass(err, "")) == shoot.ClassUnavailable
	if unavailable && !hasHTTPStatus(err, http.StatusNotFound) {
		return "", err
	}
	for _, p := range all.Items {
		if p.Spec.Namespace == n.name {
			return p.Metadata.Name, nil
		}
	}

	// By the convention of Gardener.
	return cmp.Or(strings.TrimPrefix(n.name, "garden-"), n.name), nil
}

// confirmNamespaceReadForbidden returns nil if this client has the permission to read Shoots, but not
// their namespace. Otherwise the refusal may end: an API server that has just started
// refuses requests until it has read its roles. Two processes must not record the same
// location under two identities.
func (n *shootNamespace) confirmNamespaceReadForbidden(ctx context.Context, forbiddenErr error) error {
	mayReadNamespace, err := n.reviewSelfAccess(ctx, map[string]string{
		"namespace": n.name,
		"verb":      "get",
		"version":   "v1",
		"resource":  "namespaces",
		"name":      n.name,
	})
	if err != nil {
		return err
	}
	mayReadShoots, err := n.isShootVerbAllowed(ctx, "get")
	if err != nil {
		return err
	}
	if mayReadNamespace || !mayReadShoots {
		return forbiddenErr
	}
	return nil
}

// isShootVerbAllowed asks the API server whether this client has a permission for Shoots.
func (n *shootNamespace) isShootVerbAllowed(ctx context.Context, verb string) (allowed bool, err error) {
	return n.reviewSelfAccess(ctx, map[string]string{
		"namespace": n.name,
		"verb":      verb,
		"group":     "core.gardener.cloud",
		"version":   "v1beta1",
		"resource":  "shoots",
	})
}

// reviewSelfAccess asks the API server whether this client has a permission.
func (n *shootNamespace) reviewSelfAccess(
	ctx context.Context, attributes map[string]string,
) (allowed bool, err error) {
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	request := apiRequest{
		method:    http.MethodPost,
		path:      reviewsPath,
		unlimited: true,
		body: map[string]any{
			"apiVersion": "authorization.k8s.io/v1",
			"kind":       "SelfSubjectAccessReview",
			"spec":       map[string]any{"resourceAttributes": attributes},
		},
	}
	err = n.api.sendAndDecode(ctx, request, &review)
	return review.Status.Allowed, err
}
