package httpapi

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
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// An element is one event of a request.
type element struct {
	event intake.Event
	err   error // why it is not a valid event
}

// maxElements is the maximum number of events per request.
const maxElements = 1000

var (
	errMany  = fmt.Errorf("more than %d events: split them into several requests", maxElements)
	errEmpty = errors.New("no events: send an event or a list of events")
)

// decodeEvents parses health events according to the content type and the headers. The
// error concerns the whole request; each element has its own error.
func decodeEvents(header http.Header, body []byte) ([]element, error) {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil && header.Get("Content-Type") != "" {
		return nil, errMedia
	}
	switch {
	case media == cloudevent.ContentType:
		return readEnvelope(cloudevent.Parse(body))
	case media == "application/cloudevents-batch+json":
		return readBatch(body)
	case strings.HasPrefix(media, "application/cloudevents"):
		return nil, errMedia
	case media != "" && media != "application/json" && media != "text/json" && !strings.HasSuffix(media, "+json"):
		return nil, errMedia
	case header.Get("Ce-Specversion") != "":
		return readEnvelope(cloudevent.FromAttributes(func(name string) (string, bool) {
			if name == "datacontenttype" {
				return media, true
			}
			v := header.Get("Ce-" + name)
			return v, v != ""
		}, body))
	}
	return decodeData(body, time.Time{})
}

// readEnvelope parses the events in a CloudEvent.
func readEnvelope(e cloudevent.Event, err error) ([]element, error) {
	if err != nil {
		return nil, err
	}
	return decodeData(e.Data, e.Time)
}

// readBatch parses a list of CloudEvents.
func readBatch(body []byte) ([]element, error) {
	list, err := splitArray(body)
	if err != nil {
		return nil, err
	}
	var out []element
	for _, one := range list {
		inner, err := readEnvelope(cloudevent.Parse(one))
		if err != nil {
			inner = []element{{err: fmt.Errorf("%w: %w", intake.ErrInvalid, err)}}
		}
		if out = append(out, inner...); len(out) > maxElements {
			return nil, errMany
		}
	}
	return out, nil
}

// decodeData parses one event or a list of events. at is the time at which they were
// sent, or zero if unknown.
func decodeData(body []byte, at time.Time) ([]element, error) {
	list := []jsontext.Value{body}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 {
		return nil, errEmpty
	} else if trimmed[0] == '[' {
		var err error
		if list, err = splitArray(body); err != nil {
			return nil, err
		}
	} else if !jsontext.Value(body).IsValid() {
		return nil, notJSON(body)
	}
	var out []element
	for _, one := range list {
		e, err := decodeEvent(one)
		if e.At.IsZero() {
			e.At = at
		}
		out = append(out, element{e, err})
	}
	return out, nil
}

// splitArray splits a JSON list into its elements.
func splitArray(body []byte) ([]jsontext.Value, error) {
	var list []jsontext.Value
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("body is not a JSON list: %w", err)
	}
	switch {
	case len(list) == 0:
		return nil, errEmpty
	case len(list) > maxElements:
		return nil, errMany
	}
	return list, nil
}

func notJSON(body []byte) error {
	var value jsontext.Value
	return fmt.Errorf("body is not JSON: %w", json.Unmarshal(body, &value))
}

// A wireEvent is a health event with the field names of NVSentinel.
type wireEvent struct {
	Agent               string        `json:"agent"`
	ComponentClass      string        `json:"componentClass"`
	CheckName           string        `json:"checkName"`
	IsFatal             bool          `json:"isFatal"`
	IsHealthy           bool          `json:"isHealthy"`
	Message             string        `json:"message"`
	RecommendedAction   word          `json:"recommendedAction"`
	CustomAction        string        `json:"customRecommendedAction"`
	ErrorCode           words         `json:"errorCode"`
	EntitiesImpacted    []wireEntity  `json:"entitiesImpacted"`
	GeneratedTimestamp  stamp         `json:"generatedTimestamp"`
	NodeName            string        `json:"nodeName"`
	QuarantineOverrides wireOverrides `json:"quarantineOverrides"`
	DrainOverrides      wireOverrides `json:"drainOverrides"`
	ProcessingStrategy  word          `json:"processingStrategy"`

	// HealthEvent is the nested event of NVSentinel's exporter.
	HealthEvent *wireEvent `json:"healthEvent"`
}

type wireEntity struct {
	EntityType  string `json:"entityType"`
	EntityValue string `json:"entityValue"`
}

type wireOverrides struct {
	Force bool `json:"force"`
	Skip  bool `json:"skip"`
}

// decodeEvent parses one event. It ignores the case of field names, so that a fatal fault
// with another spelling is not misread.
func decodeEvent(text []byte) (intake.Event, error) {
	var w wireEvent
	if err := json.Unmarshal(text, &w, json.MatchCaseInsensitiveNames(true)); err != nil {
		return intake.Event{}, fmt.Errorf("%w: not a health event: %w", intake.ErrInvalid, err)
	}
	if w.HealthEvent != nil {
		w = *w.HealthEvent
	}
	e := intake.Event{
		Node: w.NodeName, Agent: w.Agent, Check: w.CheckName, ComponentClass: w.ComponentClass, ErrorCodes: w.ErrorCode,
		Fatal: w.IsFatal, Healthy: w.IsHealthy, Message: w.Message, CustomAction: w.CustomAction,
		Quarantine: intake.Overrides(w.QuarantineOverrides), Drain: intake.Overrides(w.DrainOverrides), At: w.GeneratedTimestamp.Time,
	}
	for _, entity := range w.EntitiesImpacted {
		e.Entities = append(e.Entities, intake.Entity{Type: entity.EntityType, Value: entity.EntityValue})
	}
	e.Action = w.RecommendedAction.text
	if w.RecommendedAction.number != nil {
		e.Action = intake.ActionOf(*w.RecommendedAction.number)
	}
	var err error
	if w.ProcessingStrategy.number != nil {
		e.ObserveOnly = intake.ObservesOnly(*w.ProcessingStrategy.number)
	} else {
		e.ObserveOnly, err = intake.Strategy(w.ProcessingStrategy.text)
	}
	return e, err
}

// A word is the name of a value, or its number.
type word struct {
	text   string
	number *int32
}

// UnmarshalJSON accepts a name or a number.
func (w *word) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 32); err == nil {
		number := int32(n)
		w.number = &number
		return nil
	}
	return json.Unmarshal(b, &w.text)
}

// words holds one or several strings.
type words []string

// UnmarshalJSON accepts a string with commas or a list.
func (w *words) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var one string
		err := json.Unmarshal(b, &one)
		*w = strings.Split(one, ",")
		return err
	}
	var list []string
	err := json.Unmarshal(b, &list)
	*w = list
	return err
}

// A stamp is a time in RFC 3339, with or without a colon in the offset, or in seconds and
// nanoseconds as in protobuf. The empty string means no time.
type stamp struct{ time.Time }

// UnmarshalJSON accepts all of these formats.
func (s *stamp) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var parts struct {
			Seconds int64 `json:"seconds"`
			Nanos   int64 `json:"nanos"`
		}
		err := json.Unmarshal(b, &parts)
		if err == nil && (parts.Seconds != 0 || parts.Nanos != 0) {
			s.Time = time.Unix(parts.Seconds, parts.Nanos).UTC()
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
	s.Time = at
	return nil
}
