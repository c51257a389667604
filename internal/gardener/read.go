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
	var s seen
	err := c.ns.getShoot(ctx, name, &s)
	if errors.Is(err, shoot.ErrNotFound) {
		return shoot.Observed{}, err
	}
	if err != nil {
		return shoot.Observed{}, wrapWithClass(err, "get Shoot %q", name)
	}
	return s.toObserved(), nil
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
	var page struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
		} `json:"metadata"`
		Items []seen `json:"items"`
	}
	if err := c.ns.api.send(ctx, request{method: http.MethodGet, path: c.ns.shootsPath(), query: query}, &page); err != nil {
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
