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
func (c *Client) WatchShoots(
	ctx context.Context, resourceVersion string, handle func(shoot.Event) error,
) error {
	lastVersion := resourceVersion
	for {
		begun := time.Now()
		var handleErr error
		handleAndRemember := func(e shoot.Event) error {
			handleErr = handle(e)
			if handleErr == nil {
				lastVersion = e.Shoot.ResourceVersion
			}
			return handleErr
		}
		err := c.watchUntilServerEnds(ctx, lastVersion, handleAndRemember)
		switch {
		case handleErr != nil:
			return handleErr
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
func (c *Client) watchUntilServerEnds(
	ctx context.Context, resourceVersion string, handle func(shoot.Event) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The timer ends the watch if the server is silent for too long.
	silenceTimer := time.AfterFunc(c.ns.api.timeout, func() { cancel(errSilent) })
	defer silenceTimer.Stop()

	resp, err := c.openWatch(ctx, resourceVersion)
	if hasHTTPStatus(err, http.StatusGone) {
		return shoot.ErrExpired
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	messages := json.NewDecoder(resp.Body)
	for {
		silenceTimer.Reset(c.silence)
		var message struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		err := messages.Decode(&message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return contextCauseOr(ctx, err)
		}
		silenceTimer.Stop() // the time of the handler is no silence of the server
		event, err := parseWatchEvent(message.Type, message.Object)
		if err != nil {
			return err
		}
		if err := handle(event); err != nil {
			return err
		}
	}
}

// openWatch starts a watch of the installation's Shoots. The caller closes the body of the response.
func (c *Client) openWatch(ctx context.Context, resourceVersion string) (*http.Response, error) {
	timeout := watchTime + rand.N(watchTime) //nolint:gosec // to spread load
	query := c.installationSelector()
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", resourceVersion)
	query.Set("timeoutSeconds", strconv.Itoa(int(timeout.Seconds())))
	return c.ns.api.sendAndOpenBody(ctx, apiRequest{
		method: http.MethodGet,
		path:   c.ns.shootListPath(),
		query:  query,
	})
}

// parseWatchEvent decodes one message of a watch.
func parseWatchEvent(eventType string, object json.RawMessage) (shoot.Event, error) {
	if eventType == "ERROR" {
		return shoot.Event{}, parseWatchError(object)
	}
	var s observedShoot
	switch eventType {
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
		if err := unmarshalResponse(object, &s); err != nil {
			return shoot.Event{}, err
		}
	default:
		return shoot.Event{}, fmt.Errorf("unknown watch event type %q", eventType)
	}
	switch eventType {
	case "BOOKMARK": // it has only a resource version
		version := s.Metadata.ResourceVersion
		return shoot.Event{Type: shoot.Mark, Shoot: shoot.Observed{ResourceVersion: version}}, nil
	case "DELETED":
		return shoot.Event{Type: shoot.Gone, Shoot: s.toObservedShoot()}, nil
	default:
		return shoot.Event{Type: shoot.Seen, Shoot: s.toObservedShoot()}, nil
	}
}

// parseWatchError returns the error that the server sends in a watch.
func parseWatchError(object json.RawMessage) error {
	var s metav1.Status
	if err := unmarshalResponse(object, &s); err != nil {
		return err
	}
	expired := s.Code == http.StatusGone ||
		s.Reason == metav1.StatusReasonExpired ||
		s.Reason == metav1.StatusReasonGone
	if expired {
		return shoot.ErrExpired
	}
	return &apiError{code: int(s.Code), status: s, text: extractStatusMessage(s)}
}
