package audit

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// addEncodingsAndDecodings adds the encodings of texts in the data of a Secret, in JSON and in error
// messages. It sorts the longest first, so that replacing one leaves no remainder.
func addEncodingsAndDecodings(secrets []string) []string {
	for _, s := range slices.Clone(secrets) {
		plain, err := base64.StdEncoding.DecodeString(s)
		isText := err == nil && utf8.Valid(plain)
		if isText && len(plain) >= leastSecret {
			secrets = append(secrets, string(plain))
		}
	}
	for _, s := range slices.Clone(secrets) {
		quoted := strconv.Quote(s)
		encoded := base64.StdEncoding.EncodeToString([]byte(s))
		secrets = append(secrets, encoded, quoted[1:len(quoted)-1], escapeJSON(s, true), escapeJSON(s, false))
	}
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(secrets)
}

// escapeJSON returns a text as encoded in JSON, with HTML characters escaped if html is set.
func escapeJSON(text string, escapeHTML bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(escapeHTML)
	if err := e.Encode(text); err != nil {
		return text // not reached: every string can be encoded
	}
	quoted := strings.TrimSpace(b.String())
	return quoted[1 : len(quoted)-1]
}

// withholdTruncatedSecrets removes the start of a secret in front of each truncation mark. The text may
// have been truncated by this package or by an action.
func withholdTruncatedSecrets(text string, secrets []string) string {
	const mark = "…"
	parts := strings.Split(text, mark)
	for i, part := range parts[:len(parts)-1] {
		most := 0
		for _, s := range secrets {
			for n := min(len(s)-1, len(part)); n >= leastSecret && n > most; n-- {
				if strings.HasSuffix(part, s[:n]) {
					most = n
				}
			}
		}
		if most > 0 {
			parts[i] = part[:len(part)-most] + withheld
		}
	}
	return strings.Join(parts, mark)
}
