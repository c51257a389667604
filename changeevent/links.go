package changeevent

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A LinkTemplate generates a link for an event, such as to the dashboard of its
// node. Placeholders in braces are replaced with escaped values of the event:
//
//	https://grafana.example.com/d/node?var-node={node}&from={from}&to={to}
//
// The placeholders are cluster, node, subject, action, source, session, id, validateOptionalName,
// errorCode, agent, time (RFC 3339), and from and to: 15 minutes before and after
// the event, in Unix milliseconds. An event without a value for one of them gets
// no link.
type LinkTemplate struct {
	// Href is an https URL with placeholders after its host.
	Href string
	// Text is the text of the link, also with placeholders. Empty means the URL.
	Text string
	// Actions limits the link to these actions. Empty means all.
	Actions []string
}

// linkWindow is the distance of {from} and {to} from the time of the event.
const linkWindow = 15 * time.Minute

// Validate returns an error if the template is invalid.
func (t LinkTemplate) Validate() error {
	prefix, ok := httpsSchemeAndHost(t.Href)
	if !ok {
		return fmt.Errorf("link %q is not an https URL", t.Href)
	}
	if strings.ContainsAny(prefix, "{}") {
		return fmt.Errorf("link %q has a placeholder in its host: use placeholders only after the host", t.Href)
	}
	var probe ChangeEvent
	var unknown error
	check := func(key string) string {
		if _, known := placeholderValue(&probe, key); !known && unknown == nil {
			unknown = fmt.Errorf("link %q has the unknown placeholder {%s}: use one of %s", t.Href, key, strings.Join(placeholderNames(), ", "))
		}
		return "x"
	}
	for _, text := range []string{t.Href, t.Text} {
		filled, err := fillPlaceholders(text, check)
		if err == nil && text == t.Href {
			err = validateHref(filled, "https")
		}
		if err != nil {
			return fmt.Errorf("link %q: %w", t.Href, err)
		}
	}
	return unknown
}

// Expand generates the link for an event. It returns false if
// the event gets no link.
func (t LinkTemplate) Expand(e *ChangeEvent) (link Link, ok bool) {
	if len(t.Actions) > 0 && !slices.Contains(t.Actions, e.Action) {
		return Link{}, false
	}
	missing := false
	value := func(key string) string {
		v, _ := placeholderValue(e, key)
		missing = missing || v == ""
		return v
	}
	href, errHref := fillPlaceholders(t.Href, func(key string) string { return percentEncodeReserved(value(key)) })
	text, errText := fillPlaceholders(t.Text, value)
	if missing || errHref != nil || errText != nil || validateHref(href, "https") != nil {
		return Link{}, false
	}
	return Link{Href: href, Text: text}, true
}

func placeholderNames() []string {
	return []string{"cluster", "node", "subject", "action", "source", "session", "id", "checkName", "errorCode", "agent", "time", "from", "to"}
}

// placeholderValue returns the value of a placeholder, and whether it is known.
func placeholderValue(e *ChangeEvent, key string) (value string, known bool) {
	switch key {
	case "cluster":
		return e.Cluster, true
	case "node":
		return e.NodeName, true
	case "subject":
		return e.Subject, true
	case "action":
		return e.Action, true
	case "source":
		return e.Source, true
	case "session":
		return e.Session, true
	case "id":
		return idOrDerived(e), true
	case "checkName":
		return e.CheckName, true
	case "errorCode":
		return errorCodeText(e), true
	case "agent":
		return e.Agent, true
	case "time":
		return CanonicalTime(e.Timestamp), true
	case "from":
		return strconv.FormatInt(e.Timestamp.Add(-linkWindow).UnixMilli(), 10), true
	case "to":
		return strconv.FormatInt(e.Timestamp.Add(linkWindow).UnixMilli(), 10), true
	}
	return "", false
}

var errBraces = errors.New("unbalanced brace")

// fillPlaceholders replaces the placeholders of a text.
func fillPlaceholders(text string, value func(key string) string) (string, error) {
	if !strings.ContainsAny(text, "{}") {
		return text, nil
	}
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "{")
		if strings.Contains(before, "}") {
			return "", errBraces
		}
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		key, after, ok := strings.Cut(rest, "}")
		if !ok || strings.Contains(key, "{") {
			return "", errBraces
		}
		out.WriteString(value(key))
		text = after
	}
}

// percentEncodeReserved escapes all but the unreserved characters of a URL, so that a name cannot add
// a parameter or a segment.
func percentEncodeReserved(value string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(value) {
		b := value[i]
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', strings.IndexByte("-._~", b) >= 0:
			out.WriteByte(b)
		default:
			out.Write([]byte{'%', hex[b>>4], hex[b&15]})
		}
	}
	return out.String()
}

// httpsSchemeAndHost returns the scheme and the host of an https URL, unchanged.
func httpsSchemeAndHost(href string) (prefix string, ok bool) {
	const scheme = "https://"
	if !strings.HasPrefix(href, scheme) {
		return "", false
	}
	rest := href[len(scheme):]
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return scheme + rest, rest != ""
}

// validateHref returns why a link must not be shown, as people click on it.
func validateHref(href string, schemes ...string) error {
	u, err := url.Parse(href)
	switch {
	case err != nil, sanitizeLine(href) != href:
		return errors.New("not a valid URL")
	case !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("scheme is %q, must be %s", u.Scheme, strings.Join(schemes, " or "))
	case u.Hostname() == "":
		return errors.New("no host")
	case u.User != nil:
		return errors.New("must not contain a user or password")
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return errors.New("path must not contain . or .. segments")
		}
	}
	return nil
}

// safeOwnAndTemplateLinks returns the links of the event and of the sink, without duplicates and without
// unsafe links.
func safeOwnAndTemplateLinks(templates []LinkTemplate, e *ChangeEvent) []Link {
	var links []Link
	add := func(l Link) {
		same := func(other Link) bool { return other.Href == l.Href }
		if len(l.Href) <= maxHref && !slices.ContainsFunc(links, same) && len(links) < maxLinks {
			links = append(links, Link{Href: l.Href, Text: truncateText(sanitizeLine(l.Text), maxLinkText)})
		}
	}
	for _, l := range e.Links {
		if validateHref(l.Href, "https", "http") == nil {
			add(l)
		}
	}
	for _, t := range templates {
		if l, ok := t.Expand(e); ok {
			add(l)
		}
	}
	return links
}
