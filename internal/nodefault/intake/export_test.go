package intake

import (
	"context"
	"net/http"
)

// An Element is an element for fuzz tests.
type Element struct {
	Event Event
	Err   error
}

// DecodeEvents decodes health events.
func DecodeEvents(header http.Header, body []byte) ([]Element, error) {
	return exported(decodeEventsByContentType(header, body))
}

// DecodeAlerts decodes alerts.
func DecodeAlerts(ctx context.Context, body []byte) ([]Element, error) {
	return exported(DefaultAlertConfig().decodeAlertNotification(ctx, body, nil))
}

func exported(elements []eventOrError, err error) ([]Element, error) {
	var out []Element
	for _, e := range elements {
		out = append(out, Element{e.event, e.err})
	}
	return out, err
}
