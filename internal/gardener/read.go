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
	var s observedShoot
	err := c.ns.getShootInto(ctx, name, &s)
	if errors.Is(err, shoot.ErrNotFound) {
		return shoot.Observed{}, err
	}
	if err != nil {
		return shoot.Observed{}, wrapWithErrorClass(err, "get Shoot %q", name)
	}
	return s.toObservedShoot(), nil
}

// installationSelector returns the selector of the installation's Shoots.
func (c *Client) installationSelector() url.Values {
	return url.Values{"labelSelector": {shoot.LabelInstallation + "=" + c.installation}}
}

// ListShoots returns the current Shoots of the installation.
func (c *Client) ListShoots(ctx context.Context) (shoot.List, error) {
	var err error
	for range maxTries {
		var list shoot.List
		list, err = c.listOwnShootsPaged(ctx)
		if err == nil {
			return list, nil
		}
		// The list may take so long that its continue token expires. Then it starts again.
		if !hasHTTPStatus(err, http.StatusGone) {
			break
		}
	}
	return shoot.List{}, wrapWithErrorClass(err, "list Shoots")
}

// listOwnShootsPaged lists the current Shoots, page by page.
func (c *Client) listOwnShootsPaged(ctx context.Context) (shoot.List, error) {
	list := shoot.List{Shoots: []shoot.Observed{}}
	query := c.installationSelector()
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		page, err := c.fetchPage(ctx, query)
		if err != nil {
			return list, err
		}
		for i := range page.Items {
			list.Shoots = append(list.Shoots, page.Items[i].toObservedShoot())
		}
		list.ResourceVersion = page.Metadata.ResourceVersion // the same on all pages
		if page.Metadata.Continue == "" {
			return list, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// A shootPage is one page of a list of Shoots.
type shootPage struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"` // empty on the last page
	} `json:"metadata"`
	Items []observedShoot `json:"items"`
}

// fetchPage reads one page of a list.
func (c *Client) fetchPage(ctx context.Context, query url.Values) (shootPage, error) {
	request := apiRequest{method: http.MethodGet, path: c.ns.shootListPath(), query: query}
	var page shootPage
	if err := c.ns.api.sendAndDecode(ctx, request, &page); err != nil {
		return shootPage{}, err
	}
	if page.Metadata.ResourceVersion == "" {
		return shootPage{}, shoot.NewClassErrorf(shoot.ClassUnavailable, "invalid response: list without a resource version")
	}
	return page, nil
}
