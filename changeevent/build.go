package changeevent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a payload, in characters and in number. Sinks and proxies reject large
// bodies.
const (
	maxName     = 253 // of a node, a cluster, an action and similar names, as in Kubernetes
	maxMessage  = 4096
	maxReason   = 1024
	maxCodes    = 64
	maxLinks    = 16
	maxHref     = 2048
	maxLinkText = 128
	maxDetails  = 32
	maxValue    = 512
)

// Limits of text in bytes: of one event, and of all events in one request. The JSON
// encoding can be twice as long.
const (
	maxText   = 56 << 10
	batchText = 512 << 10
)

// NewPayload converts an event to the default format. It derives missing fields,
// such as the id and the summary, and makes text valid and not too long for sinks.
func NewPayload(e ChangeEvent) Payload { return newPayload(encodeSettings{}, &e) }

// newPayload converts an event to a payload with the links of the sink. It does not change
// the event.
func newPayload(settings encodeSettings, e *ChangeEvent) Payload {
	fields, omitted := redactedFieldChanges(e)
	p := Payload{
		Action:         sanitizeLabel(e.Action),
		Timestamp:      CanonicalTime(e.Timestamp),
		Source:         sanitizeLabel(e.Source),
		Cluster:        sanitizeLabel(e.Cluster),
		Node:           sanitizeLabel(e.NodeName),
		HealthEvent:    buildHealthEventOrNil(e),
		DryRun:         e.DryRun,
		ID:             idOrDerived(e),
		Subject:        sanitizeLabel(e.Subject),
		Summary:        summaryOrGenerated(e, settings.product),
		Outcome:        OutcomeSucceeded,
		Reason:         truncateText(sanitizeText(e.Reason), maxReason),
		Session:        sanitizeLabel(e.Session),
		Links:          safeOwnAndTemplateLinks(settings.links, e),
		Details:        cleanAndLimitDetails(e),
		Changes:        fields,
		ChangesOmitted: omitted,
	}
	if e.Outcome == OutcomeFailed {
		p.Outcome = OutcomeFailed
	}
	shrinkPayload(&p, cmp.Or(settings.room, maxText))
	return p
}

// shrinkPayload removes the least important fields until the text of the payload fits
// into maxLength bytes.
func shrinkPayload(p *Payload, maxLength int) {
	if textLength(p) > maxLength {
		p.Details = nil
	}
	if textLength(p) > maxLength {
		p.Links = nil
	}
	if textLength(p) > maxLength {
		p.ChangesOmitted += len(p.Changes)
		p.Changes = nil
	}
	if h := p.HealthEvent; h != nil {
		if textLength(p) > maxLength {
			h.ErrorCodes = nil
		}
		if textLength(p) > maxLength {
			h.Message, h.ErrorCode = truncateText(h.Message, maxLinkText), truncateText(h.ErrorCode, maxLinkText)
		}
	}
	if textLength(p) > maxLength {
		p.Reason, p.Summary = truncateText(p.Reason, maxLinkText), truncateText(p.Summary, maxName)
	}
}

// textLength returns how many bytes of text a payload has.
func textLength(p *Payload) (bytes int) {
	n := len(p.Action) + len(p.Source) + len(p.Cluster) + len(p.Node) + len(p.ID) + len(p.Subject) + len(p.Summary) + len(p.Reason) + len(p.Session)
	if h := p.HealthEvent; h != nil {
		n += len(h.CheckName) + len(h.ErrorCode) + len(h.Agent) + len(h.Message)
		for _, code := range h.ErrorCodes {
			n += len(code)
		}
	}
	for _, l := range p.Links {
		n += len(l.Href) + len(l.Text)
	}
	for _, c := range p.Changes {
		n += len(c.Field) + len(c.Before) + len(c.After)
	}
	for key, value := range p.Details {
		n += len(key) + len(value)
	}
	return n
}

// CanonicalTime formats a time as RFC 3339 in UTC with exactly three decimals:
// 2025-08-26T14:42:58.315Z. Further decimals are truncated. A year without four
// digits is replaced by the nearest year with four digits.
func CanonicalTime(t time.Time) string {
	t = t.UTC()
	switch {
	case t.Year() > 9999:
		t = time.Date(9999, time.December, 31, 23, 59, 59, 999_000_000, time.UTC)
	case t.Year() < 0:
		t = time.Date(0, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

// ID returns the id of an event. If it has none, the id is derived from the other
// fields, so a repeated event has the same id. Free text does not affect it.
func ID(e ChangeEvent) string { return idOrDerived(&e) }

func idOrDerived(e *ChangeEvent) string {
	if id := sanitizeLabel(e.ID); id != "" {
		if id == e.ID {
			return id
		}
		sum := sha256.Sum256([]byte(e.ID)) // a truncated id could equal that of another event
		return hex.EncodeToString(sum[:16])
	}
	h := sha256.New()
	buf := make([]byte, 0, 256)
	for _, part := range [...]string{
		e.Cluster, e.Source, e.Action, e.NodeName, e.Subject, e.Session,
		e.Timestamp.UTC().Format(time.RFC3339Nano), e.CheckName, errorCodeText(e), e.Outcome, strconv.FormatBool(e.DryRun),
	} {
		buf = strconv.AppendInt(buf[:0], int64(len(part)), 10)
		buf = append(append(buf, ':'), part...)
		h.Write(buf)
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0])[:16])
}

// errorCodeText returns the error codes in one string.
func errorCodeText(e *ChangeEvent) string {
	return cmp.Or(e.ErrorCode, strings.Join(e.ErrorCodes, ","))
}

// buildHealthEventOrNil returns the health report of an event, or nil if it has none.
func buildHealthEventOrNil(e *ChangeEvent) *HealthEvent {
	var codes []string
	for _, code := range e.ErrorCodes[:min(len(e.ErrorCodes), maxCodes)] {
		code = sanitizeLabel(code)
		if code != "" {
			codes = append(codes, code)
		}
	}
	errorCode := cmp.Or(sanitizeLine(e.ErrorCode), strings.Join(codes, ","))
	h := &HealthEvent{
		CheckName:  sanitizeLabel(e.CheckName),
		ErrorCode:  truncateText(errorCode, maxReason),
		Agent:      sanitizeLabel(e.Agent),
		IsFatal:    e.IsFatal,
		Message:    truncateText(sanitizeText(e.Message), maxMessage),
		ErrorCodes: codes,
	}
	hasText := h.CheckName != "" || h.Agent != "" || h.Message != "" || h.ErrorCode != ""
	if !hasText && !h.IsFatal && len(codes) == 0 {
		return nil
	}
	return h
}

// summaryOrGenerated returns the summary of the event, or the result of Summarize if it has none.
// Both are marked for a dry run.
func summaryOrGenerated(e *ChangeEvent, product string) string {
	own := sanitizeLine(e.Summary)
	if own == "" {
		return summarize(e, product)
	}
	if e.DryRun && !strings.HasPrefix(own, dryRunMark) {
		own = dryRunMark + own
	}
	return truncateText(own, maxSummary)
}

// cleanAndLimitDetails copies the details within the limits. If there are too many, it keeps the
// first by name.
func cleanAndLimitDetails(e *ChangeEvent) map[string]string {
	if len(e.Details) == 0 {
		return nil
	}
	details := make(map[string]string, min(len(e.Details), maxDetails))
	for _, key := range slices.Sorted(maps.Keys(e.Details)) {
		if len(details) == maxDetails {
			break
		}
		if k := sanitizeLabel(key); k != "" {
			details[k] = truncateText(sanitizeText(e.Details[key]), maxValue)
		}
	}
	if len(details) == 0 {
		return nil
	}
	return details
}

// sanitizeLabel returns a text as one line of at most maxName characters.
func sanitizeLabel(text string) string {
	if len(text) <= maxName && utf8.ValidString(text) && isCleanASCII(text) {
		return sanitizeLine(text)
	}
	return truncateText(sanitizeLine(text), maxName)
}
