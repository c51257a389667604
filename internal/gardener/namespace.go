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

// A namespace is the namespace of the project's Shoots.
type namespace struct {
	api    *transport
	name   string
	exists atomic.Bool // set once the namespace is known to exist
}

func (n *namespace) shootsPath() string { return shootsAPI + "/namespaces/" + n.name + "/shoots" }

func (n *namespace) shootPath(shootName string) string {
	return n.shootsPath() + "/" + url.PathEscape(shootName)
}

// getShoot reads the current Shoot of a name. It returns shoot.ErrNotFound for an absent Shoot.
func (n *namespace) getShoot(ctx context.Context, shootName string, into any) error {
	err := n.api.send(ctx, request{method: http.MethodGet, path: n.shootPath(shootName)}, into)
	if !isAbsent(err, "shoots") {
		return err
	}
	// A missing namespace has no Shoots either. Taking that for a completed deletion
	// would mean to forget running clusters.
	if err := n.checkExists(ctx, false); err != nil {
		return err
	}
	return shoot.ErrNotFound
}

// checkExists returns an error if the namespace does not exist. It asks until it knows, or
// until the read is forbidden.
func (n *namespace) checkExists(ctx context.Context, patient bool) error {
	if n.exists.Load() {
		return nil
	}
	_, err := n.readMeta(ctx, patient)
	if err != nil && !hasCode(err, http.StatusForbidden) {
		return err
	}
	n.exists.Store(true)
	return nil
}

// readMeta reads the metadata of the namespace.
func (n *namespace) readMeta(ctx context.Context, patient bool) (meta, error) {
	var ns struct {
		Metadata meta `json:"metadata"`
	}
	err := n.api.send(ctx, request{method: http.MethodGet, path: "/api/v1/namespaces/" + n.name, unlimited: true, patient: patient}, &ns)
	if isAbsent(err, "namespaces") {
		err = shoot.Errorf(shoot.ClassUnavailable, "namespace %q not found", n.name)
	}
	return ns.Metadata, err
}

// labelProject is the label of the namespace of a project.
const labelProject = "project.gardener.cloud/name"

// findProject reads the project's name from the namespace, then from the projects. It
// guesses the name if neither is permitted.
func (n *namespace) findProject(ctx context.Context) (string, error) {
	ns, err := n.readMeta(ctx, false)
	if err != nil && !hasCode(err, http.StatusForbidden) {
		return "", err
	}
	if name := ns.Labels[labelProject]; name != "" {
		return name, nil
	}
	var all struct {
		Items []struct {
			Metadata meta `json:"metadata"`
			Spec     struct {
				Namespace string `json:"namespace"`
			} `json:"spec"`
		} `json:"items"`
	}
	err = n.api.send(ctx, request{method: http.MethodGet, path: projects, unlimited: true}, &all)
	if err != nil && shoot.ClassOf(wrapWithClass(err, "")) == shoot.ClassUnavailable && !hasCode(err, http.StatusNotFound) {
		return "", err
	}
	for _, p := range all.Items {
		if p.Spec.Namespace == n.name {
			return p.Metadata.Name, nil
		}
	}
	return cmp.Or(strings.TrimPrefix(n.name, "garden-"), n.name), nil
}

// confirmNoAccess returns nil if this client has the permission to read Shoots, but not
// their namespace. Otherwise the refusal may end: an API server that has just started
// refuses requests until it has read its roles. Two processes must not record the same
// location under two identities.
func (n *namespace) confirmNoAccess(ctx context.Context, refusal error) error {
	mayReadNamespace, err := n.reviewAccess(ctx, map[string]string{"namespace": n.name, "verb": "get", "version": "v1", "resource": "namespaces", "name": n.name})
	if err != nil {
		return err
	}
	mayReadShoots, err := n.mayDo(ctx, "get")
	if err != nil {
		return err
	}
	if mayReadNamespace || !mayReadShoots {
		return refusal
	}
	return nil
}

// mayDo asks the API server whether this client has a permission for Shoots.
func (n *namespace) mayDo(ctx context.Context, verb string) (allowed bool, err error) {
	return n.reviewAccess(ctx, map[string]string{
		"namespace": n.name, "verb": verb, "group": "core.gardener.cloud", "version": "v1beta1", "resource": "shoots",
	})
}

// reviewAccess asks the API server whether this client has a permission.
func (n *namespace) reviewAccess(ctx context.Context, attributes map[string]string) (allowed bool, err error) {
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err = n.api.send(ctx, request{method: http.MethodPost, path: reviewsPath, unlimited: true, body: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": attributes},
	}}, &review)
	return review.Status.Allowed, err
}
