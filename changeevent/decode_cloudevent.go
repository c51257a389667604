package changeevent

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// ErrMediaType reports a request with an unsupported content type.
var ErrMediaType = errors.New("content type is not supported")

// IsCloudEvent reports whether a request contains CloudEvents, which
// DecodeCloudEvent parses, rather than payloads, which DecodeAll parses.
func IsCloudEvent(header http.Header) bool {
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type")) // a media type that cannot be parsed does not match
	return strings.HasPrefix(media, "application/cloudevents") || header.Get("Ce-Specversion") != ""
}

// DecodeCloudEvent parses the CloudEvents of a request, whose data are payloads. It
// accepts binary mode (attributes in headers), structured mode (all in the body) and
// batch mode (an array in the body). The attributes supply the id, time, source and
// subject that the data lack.
func DecodeCloudEvent(header http.Header, body []byte) ([]Payload, error) {
	media, params, err := mime.ParseMediaType(cmp.Or(header.Get("Content-Type"), typeJSON))
	if err != nil {
		return nil, fmt.Errorf("%w: cannot parse the header", ErrMediaType)
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return nil, fmt.Errorf("%w: charset must be UTF-8", ErrMediaType)
	}
	switch {
	case media == typeCloudEventBatch:
		if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
			return nil, errors.New("a CloudEvents batch must be a JSON array")
		}
		return decodeOneOrArray(body, decodeStructuredCloudEvent)
	case media == typeCloudEvent:
		p, err := decodeStructuredCloudEvent(body)
		if err != nil {
			return nil, err
		}
		return []Payload{p}, nil
	case strings.HasPrefix(media, "application/cloudevents"):
		return nil, fmt.Errorf("%w: CloudEvents must be JSON", ErrMediaType)
	case media == typeJSON || strings.HasSuffix(media, "+json"):
		p, err := decodeBinaryCloudEvent(header, body)
		if err != nil {
			return nil, err
		}
		return []Payload{p}, nil
	}
	return nil, fmt.Errorf("%w: CloudEvent data must be application/json", ErrMediaType)
}

// cloudEventAttributes holds the attributes of a CloudEvent that a payload uses.
type cloudEventAttributes struct {
	SpecVersion     string `json:"specversion"`
	Type            string `json:"type"`
	Source          string `json:"source"`
	ID              string `json:"id"`
	Time            string `json:"time"`
	Subject         string `json:"subject"`
	DataContentType string `json:"datacontenttype"`
}

func decodeStructuredCloudEvent(body []byte) (Payload, error) {
	if len(body) > MaxPayloadBytes {
		return Payload{}, fmt.Errorf("event of %d bytes: %w (limit: %d)", len(body), ErrTooLarge, MaxPayloadBytes)
	}
	var event struct {
		cloudEventAttributes

		Data       json.RawMessage `json:"data"`
		DataBase64 []byte          `json:"data_base64"`
	}
	if err := unmarshalJSONNamingWrongField(body, &event); err != nil {
		return Payload{}, err
	}
	if media, _, err := mime.ParseMediaType(cmp.Or(event.DataContentType, typeJSON)); err != nil || media != typeJSON && !strings.HasSuffix(media, "+json") {
		return Payload{}, fmt.Errorf("%w: CloudEvent data must be application/json", ErrMediaType)
	}
	data := []byte(event.Data)
	if len(event.DataBase64) > 0 {
		if len(data) > 0 {
			return Payload{}, errors.New("data and data_base64 are both set")
		}
		data = event.DataBase64
	}
	return event.toPayload(data)
}

func decodeBinaryCloudEvent(header http.Header, body []byte) (Payload, error) {
	if len(body) > MaxPayloadBytes {
		return Payload{}, fmt.Errorf("event of %d bytes: %w (limit: %d)", len(body), ErrTooLarge, MaxPayloadBytes)
	}
	var a cloudEventAttributes
	for name, into := range map[string]*string{
		"Ce-Specversion": &a.SpecVersion, "Ce-Type": &a.Type, "Ce-Source": &a.Source, "Ce-Id": &a.ID, "Ce-Time": &a.Time, "Ce-Subject": &a.Subject,
	} {
		value, err := url.PathUnescape(header.Get(name))
		if err != nil {
			return Payload{}, fmt.Errorf("header %s has invalid percent-encoding", name)
		}
		*into = value
	}
	return a.toPayload(body)
}

// toPayload decodes the data of an event and fills in missing fields from the attributes.
func (a cloudEventAttributes) toPayload(data []byte) (Payload, error) {
	if a.SpecVersion != "1.0" {
		return Payload{}, fmt.Errorf("specversion is %q, must be 1.0", truncateText(sanitizeLine(a.SpecVersion), maxLinkText))
	}
	for name, value := range map[string]string{"id": a.ID, "source": a.Source, "type": a.Type} {
		if strings.TrimSpace(value) == "" {
			return Payload{}, fmt.Errorf("CloudEvent attribute %s is required", name)
		}
	}
	var p Payload
	if len(data) == 0 {
		return p, errors.New("CloudEvent has no data")
	}
	if err := unmarshalJSONNamingWrongField(data, &p); err != nil {
		return Payload{}, fmt.Errorf("data: %w", err)
	}
	p.ID = cmp.Or(p.ID, a.idFromSourceAndID())
	p.Timestamp = cmp.Or(p.Timestamp, a.Time)
	p.Source = cmp.Or(p.Source, sanitizeLabel(a.Source))
	if p.Node == "" && p.Subject == "" {
		p.Subject = a.Subject
	}
	return validateAndNormalizePayload(p)
}

// idFromSourceAndID derives an id for an event whose data have none. The id of a CloudEvent is
// unique only within its source.
func (a cloudEventAttributes) idFromSourceAndID() string {
	sum := sha256.Sum256([]byte(a.Source + "\x00" + a.ID))
	return hex.EncodeToString(sum[:16])
}
