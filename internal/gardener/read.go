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
	for range tries {
		var l shoot.List
		l, err = c.listAllPages(ctx)
		if err == nil {
			return l, nil
		}
		// The list took so long that its continue token expired.
		if !hasHTTPStatus(err, http.StatusGone) {
			break
		}
	}
	return shoot.List{}, wrapWithErrorClass(err, "list Shoots")
}

func (c *Client) listAllPages(ctx context.Context) (shoot.List, error) {
	l := shoot.List{Shoots: []shoot.Observed{}}
	query := c.installationSelector()
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		next, err := c.fetchAndAppendPage(ctx, query, &l)
		if err != nil || next == "" {
			return l, err
		}
		query.Set("continue", next)
	}
}

// fetchAndAppendPage appends one page to a list.
func (c *Client) fetchAndAppendPage(ctx context.Context, query url.Values, list *shoot.List) (continueToken string, err error) {
	var page struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
		} `json:"metadata"`
		Items []observedShoot `json:"items"`
	}
	if err := c.ns.api.sendAndDecode(ctx, apiRequest{method: http.MethodGet, path: c.ns.shootListPath(), query: query}, &page); err != nil {
		return "", err
	}
	if page.Metadata.ResourceVersion == "" {
		return "", shoot.NewClassErrorf(shoot.ClassUnavailable, "invalid response: list without a resource version")
	}
	for i := range page.Items {
		list.Shoots = append(list.Shoots, page.Items[i].toObservedShoot())
	}
	list.ResourceVersion = page.Metadata.ResourceVersion // the same on all pages
	return page.Metadata.Continue, nil
}
