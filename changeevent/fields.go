package changeevent

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits of the changed fields of an event: their number, and the characters of each
// value.
const (
	maxFields     = 32
	maxFieldValue = 256
)

// Redacted replaces a value that may be secret.
const Redacted = "[redacted]"

// A FieldChange is a changed field with its values before and after.
type FieldChange struct {
	// Field is the path of the field, such as "spec.version", "labels.tier" or
	// "spec.workers[0].maximum".
	Field string `json:"field"`
	// Before and After are JSON values. An empty one means that the field was
	// not set. A value of more than 256 characters becomes a string that ends
	// with "…"; one that may be secret becomes Redacted.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// cloneFieldChanges copies changed fields with their values.
func cloneFieldChanges(fields []FieldChange) []FieldChange {
	fields = slices.Clone(fields)
	for i := range fields {
		fields[i].Before, fields[i].After = bytes.Clone(fields[i].Before), bytes.Clone(fields[i].After)
	}
	return fields
}

// redactedFieldChanges returns the changed fields of an event within the limits and without secrets,
// and how many were omitted.
func redactedFieldChanges(e *ChangeEvent) (kept []FieldChange, omitted int) {
	omitted = max(e.ChangesOmitted, 0)
	// kept stays nil without fields, as in the events that Decode returns.
	for i := range e.Changes {
		c := &e.Changes[i]
		field := sanitizeLabel(c.Field)
		if field == "" || len(kept) == maxFields {
			omitted++
			continue
		}
		secret := isSecretPath(c.Field) // check the full path, because truncation could remove the secret step
		kept = append(
			kept,
			FieldChange{Field: field, Before: sanitizeAndLimitValue(c.Before, secret), After: sanitizeAndLimitValue(c.After, secret)},
		)
	}
	return kept, omitted
}

// sanitizeAndLimitValue returns a JSON value without secrets and within maxFieldValue. Text that is
// not JSON becomes a string.
func sanitizeAndLimitValue(raw json.RawMessage, secret bool) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	if secret {
		return encodeJSONOrNil(Redacted)
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil || d.More() {
		value = string(raw)
	}
	value = redactAndSanitizeInPlace(value)
	if text, ok := value.(string); ok {
		return encodeJSONOrNil(truncateText(text, maxFieldValue))
	}
	out := encodeJSONOrNil(value)
	if len(out) > maxFieldValue {
		return encodeJSONOrNil(truncateText(sanitizeText(string(out)), maxFieldValue))
	}
	return out
}

// encodeJSONOrNil encodes a decoded JSON value, which always succeeds.
func encodeJSONOrNil(value any) json.RawMessage {
	out, err := marshalJSONWithoutHTMLEscapes(value)
	if err != nil {
		return nil
	}
	return out
}

// redactAndSanitizeInPlace replaces values inside a decoded JSON value that may be secret, and makes its
// texts and keys valid. PostgreSQL cannot read a value in a JSON document with the character NUL.
func redactAndSanitizeInPlace(value any) any {
	switch v := value.(type) {
	case string:
		clean := sanitizeText(v)
		if isSecretText(v) || clean != v && isSecretText(clean) {
			return Redacted
		}
		return clean
	case []any:
		for i := range v {
			v[i] = redactAndSanitizeInPlace(v[i])
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) { // in an order, because two keys may become the same
			inner, name := v[key], sanitizeText(key)
			delete(v, key)
			if isSecretName(name) {
				v[name] = Redacted
			} else {
				v[name] = redactAndSanitizeInPlace(inner)
			}
		}
	}
	return value
}

// secretNameParts returns parts of names whose values are redacted. They are in lower case
// and without '-', '_', '.' and spaces.
func secretNameParts() []string {
	return []string{
		"secret", "token", "password", "passwd", "passphrase", "credential", "kubeconfig", "privatekey", "apikey", "accesskey",
		"clientkey", "signingkey", "encryptionkey", "sshkey", "authorization", "cookie", "dockerconfig", "connectionstring",
	}
}

// isSecretPath reports whether a step of a path is the name of a secret.
func isSecretPath(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "."), isSecretName) || isSecretName(path)
}

// isSecretName reports whether a name contains one of secretNameParts.
func isSecretName(name string) bool {
	name = strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(strings.ToLower(name))
	return slices.ContainsFunc(secretNameParts(), func(part string) bool { return strings.Contains(name, part) })
}

// secretText matches values that are secret regardless of the field name. These are PEM
// private keys, kubeconfigs, JSON web tokens, credentials of an Authorization header, and
// URLs with a password.
var secretText = regexp.MustCompile(
	`-----BEGIN [A-Z ]*PRIVATE KEY|client-key-data|eyJ[\w-]{8,}\.[\w-]{8,}\.|(?i:\b(?:bearer|basic) [\w+/=.~-]{8,})|[a-zA-Z][\w+.-]*://[^/\s:@]*:[^/\s@]+@`,
)

// isSecretText searches for the expression only in a text with a part that each match has. The
// expression is slow, and a value of a megabyte often has none of the parts.
func isSecretText(text string) bool {
	for _, part := range []string{" ", "client-key-data", "eyJ", "://"} {
		if strings.Contains(text, part) {
			return secretText.MatchString(text)
		}
	}
	return false
}

// Limits of the changed fields in a summary: their number, and the characters of each
// value.
const (
	maxSummaryFields = 3
	maxSummaryValue  = 40
)

// summarizeBeforeAndAfter describes changed fields in a few words:
//
//	spec.version 1.34 → 1.35, spec.auth.token (redacted) and 2 more
func summarizeBeforeAndAfter(fields []FieldChange, omitted int) string {
	shown := fields[:min(len(fields), maxSummaryFields)]
	parts := make([]string, len(shown))
	for i, f := range shown {
		before, after := summaryValueText(f.Before), summaryValueText(f.After)
		if before == Redacted || after == Redacted {
			parts[i] = f.Field + " (redacted)"
			continue
		}
		parts[i] = f.Field + " " + before + " → " + after
	}
	text := strings.Join(parts, ", ")
	if more := len(fields) - len(shown) + omitted; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// summaryValueText returns a value as summaries show it.
func summaryValueText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "(unset)"
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	if text == "" {
		return `""`
	}
	return truncateText(sanitizeLine(text), maxSummaryValue)
}

// RedactText returns a text without what may be secret: lines that contain a secret regardless of its name, such as a
// private key or a token, and the values of secret names. A value follows its name after ":" or "=", as in YAML,
// indented JSON and environment files, and may continue on lines with more indentation.
func RedactText(text string) string {
	var b strings.Builder
	secretIndent := -1 // of the secret name whose value goes on; -1 for none
	insideKey := false // between the first and the last line of a private key
	for line := range strings.Lines(text) {
		content := strings.TrimRight(line, "\r\n")
		end, indent := line[len(content):], len(content)-len(strings.TrimLeft(content, " \t"))
		if insideKey {
			insideKey = !strings.Contains(content, "-----END ")
			continue
		}
		if secretIndent >= 0 && (indent > secretIndent || content == "") {
			continue
		}
		secretIndent = -1
		name := strings.Trim(strings.TrimSpace(content[:max(0, strings.IndexAny(content, ":="))]), `-"' `)
		switch {
		case isSecretName(name) && !strings.ContainsAny(name, " \t"):
			b.WriteString(content[:indent] + name + ": " + Redacted + end)
			secretIndent = indent
		case isSecretText(content):
			b.WriteString(content[:indent] + Redacted + end)
			insideKey = strings.Contains(content, "-----BEGIN ") && !strings.Contains(content, "-----END ")
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}
