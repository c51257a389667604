package timeline

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A Filter selects events. All fields that are set must match; the zero value selects all.
type Filter struct {
	// Clusters lists alternatives, as Actors, Sources and Actions do.
	Clusters []string
	Node     string
	Subject  string
	Session  string
	// Field is the path of a changed field, or of a field around it, without list positions.
	Field string
	// Outcome is changeevent.OutcomeSucceeded or changeevent.OutcomeFailed.
	Outcome string
	// DryRun selects dry runs, or events that are none. Nil selects both.
	DryRun *bool
	// Text is a part of the message, in any case.
	Text string

	Actors  []string
	Sources []string
	Actions []string
	// Since and Until limit the time of the event: at or after Since, and before Until.
	Since time.Time
	Until time.Time
}

// Get returns a fact by its name in a query, so that facts can be matched like labels.
func (f *Facts) Get(name string) (value string, ok bool) {
	switch name {
	case "cluster":
		return f.Cluster, true
	case "node":
		return f.Node, true
	case "subject":
		return f.Subject, true
	case "session":
		return f.Session, true
	case "actor":
		return f.Actor, true
	case "source":
		return f.Source, true
	case "action":
		return f.Action, true
	case "outcome":
		return f.outcomeText(), true
	case "dry_run":
		return strconv.FormatBool(f.DryRun), true
	case "message":
		return f.Message, true
	}
	if field, ok := strings.CutPrefix(name, fieldFact); ok {
		return "", slices.Contains(f.Fields, field)
	}
	return "", false
}

func (f *Facts) outcomeText() string {
	if f.Failed {
		return changeevent.OutcomeFailed
	}
	return changeevent.OutcomeSucceeded
}

// fieldFact is the prefix of the fact that a field was changed. Such a fact is present or absent, like a label.
const fieldFact = "field "

// Matches reports whether the facts satisfy the filter, except for its times.
func (f *Filter) Matches(facts selector.Labels) bool {
	for _, fact := range []struct{ name, want string }{
		{"node", f.Node}, {"subject", f.Subject}, {"session", f.Session}, {"outcome", f.Outcome}, {"dry_run", f.dryRunText()},
	} {
		if value, _ := facts.Get(fact.name); fact.want != "" && value != fact.want {
			return false
		}
	}
	for _, fact := range []struct {
		name         string
		alternatives []string
	}{{"cluster", f.Clusters}, {"actor", f.Actors}, {"source", f.Sources}, {"action", f.Actions}} {
		if value, _ := facts.Get(fact.name); len(fact.alternatives) > 0 && !slices.Contains(fact.alternatives, value) {
			return false
		}
	}
	if f.Field != "" {
		if _, changed := facts.Get(fieldFact + f.Field); !changed {
			return false
		}
	}
	message, _ := facts.Get("message")
	return strings.Contains(strings.ToLower(message), strings.ToLower(f.Text))
}

// dryRunText returns the wanted value of the fact dry_run, "" for any.
func (f *Filter) dryRunText() string {
	if f.DryRun == nil {
		return ""
	}
	return strconv.FormatBool(*f.DryRun)
}

// listCanonicalParts returns the filter in canonical form, for the digest of a query.
func (f *Filter) listCanonicalParts() []string {
	return []string{
		strings.Join(f.Clusters, ","), f.Outcome, f.dryRunText(), f.Text,
		f.Node, f.Subject, f.Session, f.Field, strings.Join(f.Actors, ","), strings.Join(f.Sources, ","), strings.Join(f.Actions, ","),
		strconv.FormatInt(f.Since.UnixMicro(), 10), strconv.FormatInt(f.Until.UnixMicro(), 10),
	}
}

// longestValue is the maximum length of a parameter value.
const longestValue = 1024

// listFilterParameters returns the names of the parameters that select events, except for the times,
// followed by more names.
func listFilterParameters(extra ...string) []string {
	return append([]string{
		"cluster", "node", "subject", "session", "field", "actor", "source", "action", "outcome", "dry_run", "text",
	}, extra...)
}

// parseFilterParameters parses the parameters that select events, except for the times.
func parseFilterParameters(query url.Values) (Filter, error) {
	for _, name := range listFilterParameters() {
		value := query.Get(name)
		switch {
		case len(query[name]) > 1:
			return Filter{}, rest.NewQueryError(name, "unique", value, "occurs more than once")
		case len(value) > longestValue:
			return Filter{}, rest.NewQueryError(name, "max_length", "", "is longer than %d bytes", longestValue)
		case strings.ContainsRune(value, 0) || strings.ToValidUTF8(value, "") != value:
			return Filter{}, rest.NewQueryError(name, "format", "", "contains invalid characters")
		}
	}
	f := Filter{
		Clusters: splitCommaList(
			query.Get("cluster"),
		), Node: query.Get("node"), Subject: query.Get("subject"), Session: query.Get("session"),
		Field: stripListIndexes(query.Get("field")),
		Actors: addPrefixedComponentNames(
			query.Get("actor"),
		), Sources: addPrefixedComponentNames(query.Get("source")), Actions: splitCommaList(query.Get("action")),
		Outcome: query.Get("outcome"), Text: query.Get("text"),
	}
	if o := f.Outcome; o != "" && o != changeevent.OutcomeSucceeded && o != changeevent.OutcomeFailed {
		return Filter{}, rest.NewQueryError("outcome", "enum", o, "must be %s or %s", changeevent.OutcomeSucceeded, changeevent.OutcomeFailed)
	}
	if text := query.Get("dry_run"); text != "" {
		dryRun, err := strconv.ParseBool(text)
		if err != nil {
			return Filter{}, rest.NewQueryError("dry_run", "format", text, "must be true or false")
		}
		f.DryRun = &dryRun
	}
	return f, nil
}

// addPrefixedComponentNames returns the component names that a name may stand for. The prefix may be omitted:
// fault-quarantine for nvsentinel/fault-quarantine.
func addPrefixedComponentNames(commaSeparated string) []string {
	var list []string
	for _, name := range splitCommaList(commaSeparated) {
		list = append(list, name)
		if !strings.Contains(name, "/") {
			list = append(list, "nvsentinel/"+name, "fleetloop/"+name)
		}
	}
	return list
}

func splitCommaList(text string) []string {
	var list []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			list = append(list, word)
		}
	}
	return list
}

// parseTimeParameter parses a time limit: a time, a day, or an age such as 90m or 7d.
func parseTimeParameter(query url.Values, name string, now time.Time) (time.Time, error) {
	text := query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	if at, err := changeevent.ParseTime(text); err == nil && at.Year() >= 1 {
		return at, nil
	}
	return time.Time{}, rest.NewQueryError(
		name,
		"format",
		text,
		"must be a time such as 2026-03-01T12:00:00Z, a day such as 2026-03-01, or an age such as 90m or 7d",
	)
}
