package intake

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// A eventOrError is one event of a request.
type eventOrError struct {
	event Event
	err   error // why it is not a valid event
}

// maxRequestEvents is the maximum number of events per request.
const maxRequestEvents = 1000

var (
	errTooManyEvents = fmt.Errorf("more than %d events: split them into several requests", maxRequestEvents)
	errNoEvents      = errors.New("no events: send an event or a list of events")
)

// decodeEventsByContentType parses health events according to the content type and the headers. The
// error concerns the whole request; each event has its own error.
func decodeEventsByContentType(header http.Header, body []byte) ([]eventOrError, error) {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil && header.Get("Content-Type") != "" {
		return nil, errContentType
	}
	switch {
	case media == cloudevent.ContentType:
		return decodeCloudEventData(cloudevent.Parse(body))
	case media == "application/cloudevents-batch+json":
		return decodeCloudEventBatch(body)
	case strings.HasPrefix(media, "application/cloudevents"):
		return nil, errContentType
	}
	isJSON := media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
	if media != "" && !isJSON {
		return nil, errContentType
	}
	if header.Get("Ce-Specversion") == "" {
		return decodeEventOrList(body, time.Time{})
	}
	return decodeCloudEventData(cloudevent.FromAttributes(func(name string) (value string, found bool) {
		if name == "datacontenttype" {
			return media, true
		}
		value = header.Get("Ce-" + name)
		return value, value != ""
	}, body))
}

// decodeCloudEventData parses the events in a CloudEvent.
func decodeCloudEventData(e cloudevent.Event, err error) ([]eventOrError, error) {
	if err != nil {
		return nil, err
	}
	return decodeEventOrList(e.Data, e.Time)
}

// decodeCloudEventBatch parses a list of CloudEvents.
func decodeCloudEventBatch(body []byte) ([]eventOrError, error) {
	list, err := splitNonEmptyJSONArray(body)
	if err != nil {
		return nil, err
	}
	var events []eventOrError
	for _, text := range list {
		inner, err := decodeCloudEventData(cloudevent.Parse(text))
		if err != nil {
			inner = []eventOrError{{err: fmt.Errorf("%w: %w", ErrInvalid, err)}}
		}
		events = append(events, inner...)
		if len(events) > maxRequestEvents {
			return nil, errTooManyEvents
		}
	}
	return events, nil
}

// decodeEventOrList parses one event or a list of events. defaultTime is the time at which they were
// sent, or zero if unknown.
func decodeEventOrList(body []byte, defaultTime time.Time) ([]eventOrError, error) {
	list, err := splitEventOrList(body)
	if err != nil {
		return nil, err
	}
	events := make([]eventOrError, len(list))
	for i, text := range list {
		e, err := decodeHealthEvent(text)
		if e.At.IsZero() {
			e.At = defaultTime
		}
		events[i] = eventOrError{e, err}
	}
	return events, nil
}

func splitEventOrList(body []byte) ([]jsontext.Value, error) {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) == 0 {
		return nil, errNoEvents
	}
	if trimmed[0] == '[' {
		return splitNonEmptyJSONArray(body)
	}
	var event jsontext.Value
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, fmt.Errorf("body is not JSON: %w", err)
	}
	return []jsontext.Value{event}, nil
}

// splitNonEmptyJSONArray splits a JSON list into its elements.
func splitNonEmptyJSONArray(body []byte) ([]jsontext.Value, error) {
	var list []jsontext.Value
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("body is not a JSON list: %w", err)
	}
	switch {
	case len(list) == 0:
		return nil, errNoEvents
	case len(list) > maxRequestEvents:
		return nil, errTooManyEvents
	}
	return list, nil
}

// A wireEvent is a health event with the field names of NVSentinel.
type wireEvent struct {
	Agent               string             `json:"agent"`
	ComponentClass      string             `json:"componentClass"`
	CheckName           string             `json:"checkName"`
	IsFatal             bool               `json:"isFatal"`
	IsHealthy           bool               `json:"isHealthy"`
	Message             string             `json:"message"`
	RecommendedAction   enumNameOrNumber   `json:"recommendedAction"`
	CustomAction        string             `json:"customRecommendedAction"`
	ErrorCode           commaStringOrList  `json:"errorCode"`
	EntitiesImpacted    []Entity           `json:"entitiesImpacted"`
	GeneratedTimestamp  rfc3339OrProtoTime `json:"generatedTimestamp"`
	NodeName            string             `json:"nodeName"`
	QuarantineOverrides Overrides          `json:"quarantineOverrides"`
	DrainOverrides      Overrides          `json:"drainOverrides"`
	ProcessingStrategy  enumNameOrNumber   `json:"processingStrategy"`

	// HealthEvent is the nested event of NVSentinel's exporter.
	HealthEvent *wireEvent `json:"healthEvent"`
}

// decodeHealthEvent parses one event. It ignores the case of field names, so that a fatal fault
// with another spelling is not misread.
func decodeHealthEvent(text []byte) (Event, error) {
	var w wireEvent
	if err := json.Unmarshal(text, &w, json.MatchCaseInsensitiveNames(true)); err != nil {
		return Event{}, fmt.Errorf("%w: not a health event: %w", ErrInvalid, err)
	}
	if w.HealthEvent != nil {
		w = *w.HealthEvent
	}
	e := Event{
		Node:           w.NodeName,
		Agent:          w.Agent,
		Check:          w.CheckName,
		ComponentClass: w.ComponentClass,
		Entities:       w.EntitiesImpacted,
		ErrorCodes:     w.ErrorCode,
		Fatal:          w.IsFatal,
		Healthy:        w.IsHealthy,
		Message:        w.Message,
		Action:         w.RecommendedAction.text,
		CustomAction:   w.CustomAction,
		Quarantine:     w.QuarantineOverrides,
		Drain:          w.DrainOverrides,
		At:             w.GeneratedTimestamp.Time,
		GeneratedAt:    w.GeneratedTimestamp.Time,
	}
	if w.RecommendedAction.number != nil {
		e.Action = NVSentinelActionName(*w.RecommendedAction.number)
	}
	if w.ProcessingStrategy.number != nil {
		e.ObserveOnly = IsObserveOnlyStrategy(*w.ProcessingStrategy.number)
		return e, nil
	}
	var err error
	e.ObserveOnly, err = ParseStrategy(w.ProcessingStrategy.text)
	return e, err
}

// An enumNameOrNumber is the name of a value, or its number.
type enumNameOrNumber struct {
	text   string
	number *int32
}

// UnmarshalJSON accepts a name or a number.
func (e *enumNameOrNumber) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 32); err == nil {
		number := int32(n)
		e.number = &number
		return nil
	}
	return json.Unmarshal(b, &e.text)
}

// commaStringOrList holds one or several strings.
type commaStringOrList []string

// UnmarshalJSON accepts a string with commas or a list.
func (l *commaStringOrList) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		err := json.Unmarshal(b, &text)
		*l = strings.Split(text, ",")
		return err
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// A rfc3339OrProtoTime is a time in RFC 3339, with or without a colon in the offset, or in seconds
// and nanoseconds as in protobuf. The empty string means no time.
type rfc3339OrProtoTime struct{ time.Time }

// UnmarshalJSON accepts all of these formats.
func (t *rfc3339OrProtoTime) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var parts struct {
			Seconds int64 `json:"seconds"`
			Nanos   int64 `json:"nanos"`
		}
		err := json.Unmarshal(b, &parts)
		if err == nil && (parts.Seconds != 0 || parts.Nanos != 0) {
			t.Time = time.Unix(parts.Seconds, parts.Nanos).UTC()
		}
		return err
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil || text == "" {
		return err
	}
	at, err := changeevent.ParseTime(text)
	if err != nil {
		return fmt.Errorf("generatedTimestamp: %w", err)
	}
	t.Time = at
	return nil
}
