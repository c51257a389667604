package gardener

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// GetShoot is the Shoot of a name as it is now, shoot.ErrNotFound if there is
// none.
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
		return shoot.Observed{}, wrapRefusal(err, "get Shoot %q", name)
	}
	return s.toObserved(), nil
}

// getShoot asks for a Shoot. Without a resource version the answer is of now, not of
// some time ago.
func (c *Client) getShoot(ctx context.Context, name string) (answer, error) {
	a, err := c.sendRequest(ctx, request{method: http.MethodGet, path: c.shootPath(name)})
	if !isAbsent(err, "shoots") {
		return a, err
	}
	// In a namespace that is not there no Shoot is either. To take that for a
	// deletion that is done would be to forget clusters that run.
	if err := c.checkNamespace(ctx, false); err != nil {
		return answer{}, err
	}
	return answer{}, shoot.ErrNotFound
}

// checkNamespace is an error if our namespace is not there. It asks until it
// knows, or knows that it may not know.
func (c *Client) checkNamespace(ctx context.Context, patient bool) error {
	if c.exists.Load() {
		return nil
	}
	_, err := c.ourNamespace(ctx, patient)
	if err != nil && !hasCode(err, http.StatusForbidden) {
		return err
	}
	c.exists.Store(true)
	return nil
}

// ourNamespace is the namespace that the Shoots are in.
func (c *Client) ourNamespace(ctx context.Context, patient bool) (meta, error) {
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

// ownSelector selects the Shoots of the installation.
func (c *Client) ownSelector() url.Values {
	return url.Values{"labelSelector": {shoot.LabelInstallation + "=" + c.installation}}
}

// ListShoots are the Shoots of the installation, as they are now.
func (c *Client) ListShoots(ctx context.Context) (shoot.List, error) {
	var err error
	for range tries {
		var l shoot.List
		l, err = c.listShoots(ctx)
		if err == nil {
			return l, nil
		}
		// It took so long that the server has forgotten what it listed.
		if !hasCode(err, http.StatusGone) {
			break
		}
	}
	return shoot.List{}, wrapRefusal(err, "list Shoots")
}

func (c *Client) listShoots(ctx context.Context) (shoot.List, error) {
	l := shoot.List{Shoots: []shoot.Observed{}}
	query := c.ownSelector()
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		next, err := c.listPage(ctx, query, &l)
		if err != nil || next == "" {
			return l, err
		}
		query.Set("continue", next)
	}
}

// listPage adds one page to a list.
func (c *Client) listPage(ctx context.Context, query url.Values, l *shoot.List) (next string, err error) {
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
	l.ResourceVersion = page.Metadata.ResourceVersion // of all pages the same
	return page.Metadata.Continue, nil
}

// Project is the name of the project whose namespace ours is.
func (c *Client) Project(ctx context.Context) (string, error) {
	p, err := c.findProject(ctx)
	return p, wrapRefusal(err, "find project of namespace %q", c.namespace)
}
