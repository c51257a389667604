package gardener

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// watchTime is the requested duration of a watch, randomly up to twice as long, after
// which it is restarted. So watches do not all end at once, and move to new servers.
const watchTime = 5 * time.Minute

// errSilent is the cause of a watch whose connection seems to be dead.
var errSilent = errors.New("no events received in time")

// WatchShoots reports the events of the installation's Shoots after a resource version.
// It returns when ctx ends, when handle returns an error, which it returns, or when the
// server no longer answers. It returns shoot.ErrExpired if the server no longer has the
// events since then, so that the caller has to list again.
func (c *Client) WatchShoots(ctx context.Context, resourceVersion string, handle func(shoot.Event) error) error {
	at := resourceVersion
	for {
		begun := time.Now()
		handled := error(nil)
		err := c.watchUntilServerEnds(ctx, at, func(e shoot.Event) error {
			if handled = handle(e); handled == nil {
				at = e.Shoot.ResourceVersion
			}
			return handled
		})
		switch {
		case handled != nil:
			return handled
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, shoot.ErrExpired):
			return err
		case err != nil:
			return wrapWithErrorClass(err, "watch Shoots")
		}
		// The server has ended the watch. The pause protects a server that does so at
		// once.
		if wait := time.Second - time.Since(begun); wait > 0 && backoff.Sleep(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// watchUntilServerEnds watches once. It returns no error when the server ends the watch.
func (c *Client) watchUntilServerEnds(ctx context.Context, resourceVersion string, handle func(shoot.Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dead := time.AfterFunc(c.ns.api.timeout, func() { cancel(errSilent) })
	defer dead.Stop()

	query := c.installationSelector()
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", resourceVersion)
	query.Set("timeoutSeconds", strconv.Itoa(int((watchTime + rand.N(watchTime)).Seconds()))) //nolint:gosec // to spread load
	resp, err := c.ns.api.sendAndOpenBody(ctx, apiRequest{method: http.MethodGet, path: c.ns.shootListPath(), query: query})
	if hasHTTPStatus(err, http.StatusGone) {
		return shoot.ErrExpired
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := json.NewDecoder(resp.Body)
	for {
		dead.Reset(c.silence)
		var line struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return contextCauseOr(ctx, err)
		}
		dead.Stop() // the time of the handler is no silence of the server
		e, err := parseWatchEvent(line.Type, line.Object)
		if err != nil {
			return err
		}
		if err := handle(e); err != nil {
			return err
		}
	}
}

// parseWatchEvent decodes one message of a watch.
func parseWatchEvent(eventType string, object json.RawMessage) (shoot.Event, error) {
	if eventType == "ERROR" {
		return shoot.Event{}, parseWatchError(object)
	}
	types := map[string]shoot.EventType{"ADDED": shoot.Seen, "MODIFIED": shoot.Seen, "DELETED": shoot.Gone, "BOOKMARK": shoot.Mark}
	t, ok := types[eventType]
	if !ok {
		return shoot.Event{}, fmt.Errorf("unknown watch event type %q", eventType)
	}
	var s observedShoot
	if err := unmarshalResponse(object, &s); err != nil {
		return shoot.Event{}, err
	}
	if t == shoot.Mark {
		return shoot.Event{Type: t, Shoot: shoot.Observed{ResourceVersion: s.Metadata.ResourceVersion}}, nil
	}
	return shoot.Event{Type: t, Shoot: s.toObservedShoot()}, nil
}

func parseWatchError(object json.RawMessage) error {
	var s metav1.Status
	if err := unmarshalResponse(object, &s); err != nil {
		return err
	}
	if s.Code == http.StatusGone || s.Reason == metav1.StatusReasonExpired || s.Reason == metav1.StatusReasonGone {
		return shoot.ErrExpired
	}
	return &apiError{code: int(s.Code), status: s, text: extractStatusMessage(s)}
}
