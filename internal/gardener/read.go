package gardener

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// GetShoot returns the current Shoot of a name. It returns shoot.ErrNotFound for an
// absent Shoot.
func (c *Client) GetShoot(ctx context.Context, name string) (shoot.Observed, error) {
	a, err := c.getShoot(ctx, name)
	if errors.Is(err, shoot.ErrNotFound) {
		return shoot.Observed{}, err
	}
	var s seen
	if err == nil {
		err = decodeObject(a, &s)
	}
	if err != nil {
		return shoot.Observed{}, wrapWithClass(err, "get Shoot %q", name)
	}
	return s.toObserved(), nil
}

// getShoot reads a Shoot. Without a resource version the answer is current.
func (c *Client) getShoot(ctx context.Context, name string) (answer, error) {
	a, err := c.sendRequest(ctx, request{method: http.MethodGet, path: c.shootPath(name)})
	if !isAbsent(err, "shoots") {
		return a, err
	}
	// A missing namespace has no Shoots either. Taking that for a completed deletion
	// would mean to forget running clusters.
	if err := c.checkNamespaceExists(ctx, false); err != nil {
		return answer{}, err
	}
	return answer{}, shoot.ErrNotFound
}

// checkNamespaceExists returns an error if the namespace does not exist. It asks until it
// knows, or until the read is forbidden.
func (c *Client) checkNamespaceExists(ctx context.Context, patient bool) error {
	if c.exists.Load() {
		return nil
	}
	_, err := c.readNamespace(ctx, patient)
	if err != nil && !hasCode(err, http.StatusForbidden) {
		return err
	}
	c.exists.Store(true)
	return nil
}

// readNamespace reads the namespace of the Shoots.
func (c *Client) readNamespace(ctx context.Context, patient bool) (meta, error) {
	a, err := c.sendRequest(ctx, request{method: http.MethodGet, path: "/api/v1/namespaces/" + c.namespace, unlimited: true, patient: patient})
	if isAbsent(err, "namespaces") {
		return meta{}, shoot.Errorf(shoot.ClassUnavailable, "namespace %q not found", c.namespace)
	}
	if err != nil {
		return meta{}, err
	}
	var ns struct {
		Metadata meta `json:"metadata"`
	}
	err = decodeObject(a, &ns)
	return ns.Metadata, err
}

// ownSelector returns the selector of the installation's Shoots.
func (c *Client) ownSelector() url.Values {
	return url.Values{"labelSelector": {shoot.LabelInstallation + "=" + c.installation}}
}

// ListShoots returns the current Shoots of the installation.
func (c *Client) ListShoots(ctx context.Context) (shoot.List, error) {
	var err error
	for range tries {
		var l shoot.List
		l, err = c.listShoots(ctx)
		if err == nil {
			return l, nil
		}
		// The list took so long that its continue token expired.
		if !hasCode(err, http.StatusGone) {
			break
		}
	}
	return shoot.List{}, wrapWithClass(err, "list Shoots")
}

func (c *Client) listShoots(ctx context.Context) (shoot.List, error) {
	l := shoot.List{Shoots: []shoot.Observed{}}
	query := c.ownSelector()
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		next, err := c.appendPage(ctx, query, &l)
		if err != nil || next == "" {
			return l, err
		}
		query.Set("continue", next)
	}
}

// appendPage appends one page to a list.
func (c *Client) appendPage(ctx context.Context, query url.Values, l *shoot.List) (next string, err error) {
	a, err := c.sendRequest(ctx, request{method: http.MethodGet, path: c.shootsPath(), query: query})
	if err != nil {
		return "", err
	}
	var page struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
		} `json:"metadata"`
		Items []seen `json:"items"`
	}
	if err := decodeObject(a, &page); err != nil {
		return "", err
	}
	if page.Metadata.ResourceVersion == "" {
		return "", shoot.Errorf(shoot.ClassUnavailable, "invalid response: list without a resource version")
	}
	for i := range page.Items {
		l.Shoots = append(l.Shoots, page.Items[i].toObserved())
	}
	l.ResourceVersion = page.Metadata.ResourceVersion // the same on all pages
	return page.Metadata.Continue, nil
}

// Project returns the name of the project of the namespace.
func (c *Client) Project(ctx context.Context) (string, error) {
	p, err := c.findProjectName(ctx)
	return p, wrapWithClass(err, "find project of namespace %q", c.namespace)
}
