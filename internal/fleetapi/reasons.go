package fleetapi

import (
	"regexp"
	"strings"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// maxNormalised is the maximum length of a normalised message in characters.
const maxNormalised = 300

// Placeholders of the variable parts of a message.
const (
	valuePlaceholder   = "<value>"
	addressPlaceholder = "<address>"
	timePlaceholder    = "<time>"
	idPlaceholder      = "<id>"
	namePlaceholder    = "<name>"
	pathPlaceholder    = "<path>"
	numberPlaceholder  = "<n>"
)

// variablePart matches the parts of a message that differ between resources. The first group that
// matched determines the placeholder: see placeholders.
var variablePart = regexp.MustCompile(strings.Join([]string{
	"(\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|“[^”]*”|(?:^|[\\s(=:,\\[])'[^']*')", // quoted
	`(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>,;)]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)`,
	`(\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b)`,
	`(\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b|\b(?:sha256:)?[0-9a-f]{12,64}\b)`,
	`(\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?::\d+)?\b|\[?\b(?:[0-9a-fA-F]{1,4}:){2,}(?:[0-9a-fA-F:]*[0-9a-fA-F])?\]?(?::\d+)?|\b[A-Za-z][\w-]*(?:\.[\w-]+){2,}(?::\d+)?\b)`,
	`((?:/[\w.@-]+){2,}/?)`,
	`(\b[\w-]*\d[\w-]*\b|\b\w+(?:-\w+)*--[\w-]+\b)`,
}, "|"))

// listPlaceholders returns the placeholder of each group of variablePart. The last group matches words
// and numbers, and has none of its own.
func listPlaceholders() []string {
	return []string{valuePlaceholder, addressPlaceholder, timePlaceholder, idPlaceholder, addressPlaceholder, pathPlaceholder, ""}
}

// NormalizeMessage replaces the parts of a message that differ between resources: quoted values,
// addresses, times, ids, paths, numbers, and words that look like names or are resource names. Messages
// with one cause thus become one text, which can be counted.
func NormalizeMessage(message string, resourceNames ...string) string {
	message = strings.ToValidUTF8(strings.ReplaceAll(message, "\x00", ""), "")
	var b strings.Builder
	last := 0
	for _, groups := range variablePart.FindAllStringSubmatchIndex(message, -1) {
		start, end := groups[0], groups[1]
		b.WriteString(replaceNames(message[last:start], resourceNames))
		b.WriteString(replaceVariablePart(message[start:end], groups[2:]))
		last = end
	}
	b.WriteString(replaceNames(message[last:], resourceNames))
	text := strings.Join(strings.Fields(b.String()), " ")
	if utf8.RuneCountInString(text) > maxNormalised {
		text = string([]rune(text)[:maxNormalised-1]) + "…"
	}
	return text
}

// replaceVariablePart returns the replacement of a part that variablePart matched. groups has the start and the end of
// each group, negative for those that did not match.
func replaceVariablePart(messagePart string, groups []int) string {
	placeholders := listPlaceholders()
	group := 0
	for groups[2*group] < 0 {
		group++
	}
	switch placeholders[group] {
	case "":
		return placeholderOrShortWord(messagePart)
	case valuePlaceholder:
		if !strings.ContainsAny(messagePart[:1], "\"'`") && !strings.HasPrefix(messagePart, "“") {
			return messagePart[:1] + valuePlaceholder // the character before a single quote
		}
	}
	return placeholders[group]
}

// placeholderOrShortWord returns the placeholder of a word with digits or a double hyphen. Short words such
// as k8s and ipv4 are terms and stay.
func placeholderOrShortWord(word string) string {
	const longestTerm = 4
	letters := strings.IndexFunc(word, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }) >= 0
	switch {
	case !letters, isQuantity(word):
		return numberPlaceholder
	case len(word) <= longestTerm && !strings.Contains(word, "-"):
		return word
	}
	return namePlaceholder
}

var quantity = regexp.MustCompile(`^v?\d+(?:ns|us|ms|s|m|h|d|Ki|Mi|Gi|Ti|B|KB|MB|GB|TB|st|nd|rd|th)?$|^(?:\d+h)?(?:\d+m)?\d+s$`)

func isQuantity(word string) bool { return quantity.MatchString(word) }

// replaceNames replaces the given names where they stand as words.
func replaceNames(text string, names []string) string {
	const shortestName = 3
	for _, name := range names {
		if len(name) < shortestName {
			continue
		}
		for from := 0; ; {
			i := strings.Index(text[from:], name)
			if i < 0 {
				break
			}
			i += from
			end := i + len(name)
			if i > 0 && isWordByte(text[i-1]) || end < len(text) && isWordByte(text[end]) {
				from = end
				continue
			}
			text = text[:i] + namePlaceholder + text[end:]
			from = i + len(namePlaceholder)
		}
	}
	return text
}

func isWordByte(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// FindFailedCondition returns the condition with which an adapter reported a failure. ok is false if it reported none.
func FindFailedCondition(conditions []v1.AdapterCondition) (failed v1.AdapterCondition, ok bool) {
	for _, kind := range []string{v1.ConditionHealth, v1.ConditionAvailable, conditionReady} {
		for _, c := range conditions {
			if c.Type == kind && c.Status == v1.ConditionFalse {
				return c, true
			}
		}
	}
	return failed, false
}

// conditionReady is a condition that adapters of other systems report.
const conditionReady = "Ready"

func joinReasonAndMessage(condition v1.AdapterCondition) string {
	switch {
	case condition.Message == "":
		return condition.Reason
	case condition.Reason == "":
		return condition.Message
	}
	return condition.Reason + ": " + condition.Message
}

// NormalizeFailedCondition returns the reason for which a failed condition is counted.
func NormalizeFailedCondition(condition v1.AdapterCondition, resourceNames ...string) string {
	if text := NormalizeMessage(joinReasonAndMessage(condition), resourceNames...); text != "" {
		return text
	}
	return "no message"
}
