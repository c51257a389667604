package changeevent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of Decode: bytes per payload, and payloads per body.
const (
	MaxPayloadBytes = 128 << 10
	MaxPayloads     = 1000
)

// ErrTooLarge reports payloads that exceed a limit.
var ErrTooLarge = errors.New("too large")

// An ElementError reports which of several payloads is invalid.
type ElementError struct {
	// Index counts from 0.
	Index int
	Err   error
}

// Error implements error.
func (e *ElementError) Error() string { return fmt.Sprintf("element %d: %v", e.Index, e.Err) }

// Unwrap returns the cause.
func (e *ElementError) Unwrap() error { return e.Err }

// Decode parses one payload. It accepts unknown fields and both time formats. The
// result has a canonical time, and an id, a summary and an outcome, which are
// derived if the input has none. Text that is too long is truncated. A name, an id
// or a code that is too long is an error, because truncation would change its
// meaning.
func Decode(data []byte) (Payload, error) {
	var p Payload
	if len(data) > MaxPayloadBytes {
		return p, fmt.Errorf("payload of %d bytes: %w (limit: %d)", len(data), ErrTooLarge, MaxPayloadBytes)
	}
	if err := unmarshalJSONNamingWrongField(data, &p); err != nil {
		return Payload{}, err
	}
	return validateAndNormalizePayload(p)
}

// DecodeAll parses one payload or an array of payloads. It returns all of them or
// none, with an *ElementError if an element of an array is invalid.
func DecodeAll(data []byte) ([]Payload, error) {
	return decodeOneOrArray(data, Decode)
}

// decodeOneOrArray decodes one element or an array of elements with decode.
func decodeOneOrArray(data []byte, decode func([]byte) (Payload, error)) ([]Payload, error) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' {
		p, err := decode(data)
		if err != nil {
			return nil, err
		}
		return []Payload{p}, nil
	}
	var elements []json.RawMessage
	if err := unmarshalJSONNamingWrongField(data, &elements); err != nil {
		return nil, err
	}
	if len(elements) > MaxPayloads {
		return nil, fmt.Errorf("%d elements: %w (limit: %d)", len(elements), ErrTooLarge, MaxPayloads)
	}
	payloads := make([]Payload, 0, len(elements))
	for i, element := range elements {
		p, err := decode(element)
		if err != nil {
			return nil, &ElementError{Index: i, Err: err}
		}
		payloads = append(payloads, p)
	}
	return payloads, nil
}

// unmarshalJSONNamingWrongField is json.Unmarshal with error messages for the sender of the text.
func unmarshalJSONNamingWrongField(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("field %q must not be a JSON %s", wrong.Field, wrong.Value)
	}
	if err != nil {
		return fmt.Errorf("parse JSON: %w", err)
	}
	return nil
}

// ParseTime parses an RFC 3339 time with any number of decimals, also without the
// colon in the offset: 2025-08-26T14:42:58.315+0000.
func ParseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf(
		"time %q is not RFC 3339 (example: 2025-08-26T14:42:58.315Z)",
		truncateText(sanitizeLine(text), maxLinkText),
	)
}

// validateAndNormalizePayload validates a payload and fills in derived fields.
func validateAndNormalizePayload(p Payload) (Payload, error) {
	e, err := validatedEventOf(p)
	if err != nil {
		return Payload{}, err
	}
	return newPayload(encodeSettings{}, &e), nil
}

// validatedEventOf converts a payload to an event, and rejects one that no client sends.
func validatedEventOf(p Payload) (ChangeEvent, error) {
	at, err := ParseTime(p.Timestamp)
	if err != nil {
		return ChangeEvent{}, fmt.Errorf("timestamp: %w", err)
	}
	e := ChangeEvent{
		Action:         p.Action,
		NodeName:       p.Node,
		Subject:        p.Subject,
		Reason:         p.Reason,
		Timestamp:      at,
		DryRun:         p.DryRun,
		ID:             p.ID,
		Summary:        p.Summary,
		Outcome:        p.Outcome,
		Session:        p.Session,
		Source:         p.Source,
		Cluster:        p.Cluster,
		Links:          p.Links,
		Details:        p.Details,
		Changes:        p.Changes,
		ChangesOmitted: p.ChangesOmitted,
	}
	names := map[string]string{
		"action":  p.Action,
		"node":    p.Node,
		"subject": p.Subject,
		"id":      p.ID,
		"outcome": p.Outcome,
		"session": p.Session,
		"source":  p.Source,
		"cluster": p.Cluster,
	}
	if h := p.HealthEvent; h != nil {
		e.CheckName = h.CheckName
		e.ErrorCode = h.ErrorCode
		e.ErrorCodes = h.ErrorCodes
		e.Agent = h.Agent
		e.IsFatal = h.IsFatal
		e.Message = h.Message
		names["healthEvent.checkName"] = h.CheckName
		names["healthEvent.agent"] = h.Agent
	}
	for i := range p.Changes {
		names["changes["+strconv.Itoa(i)+"].field"] = p.Changes[i].Field
	}
	if strings.TrimSpace(p.Action) == "" {
		return ChangeEvent{}, errors.New(`action is required, such as "cordon"`)
	}
	for field, value := range names {
		if err := validateOptionalName(field, value); err != nil {
			return ChangeEvent{}, err
		}
	}
	if p.Outcome != "" && p.Outcome != OutcomeSucceeded && p.Outcome != OutcomeFailed {
		return ChangeEvent{}, fmt.Errorf("outcome is %q, must be %s or %s", p.Outcome, OutcomeSucceeded, OutcomeFailed)
	}
	return e, nil
}

// validateOptionalName returns why a text is not a valid name. Text that sanitizeLine would change is an
// error, because the result would be another name.
func validateOptionalName(field, value string) error {
	switch {
	case len(value) > maxName && utf8.RuneCountInString(value) > maxName:
		return fmt.Errorf("%s is longer than %d characters", field, maxName)
	case sanitizeLine(value) != value:
		return fmt.Errorf("%s %q has control characters or extra spaces", field, truncateText(value, maxLinkText))
	}
	return nil
}
