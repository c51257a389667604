package timeline

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	// pageBytes limits the size of a page, which is built in memory; clients read pages up to a
	// multiple of it. Only events with long texts make a page that ends before its limit.
	pageBytes = 8 << 20
)

// ServeListOrStream lists change events, or streams them to a client that accepts a stream.
func (t *Timeline) ServeListOrStream(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	scope, err := authorizeRead(principal)
	if err != nil {
		return err
	}
	if acceptsEventStream(r) {
		return t.serveEventStream(w, r, scope, principal)
	}
	return t.serveEventPage(w, r, scope)
}

func acceptsEventStream(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			media, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			q, err := strconv.ParseFloat(params["q"], 64)
			if media == "text/event-stream" && (err != nil || q > 0) {
				return true
			}
		}
	}
	return false
}

func rejectUnknownIfStrict(query url.Values, known ...string) error {
	strict, err := strconv.ParseBool(query.Get("strict"))
	if query.Has("strict") && err != nil {
		return rest.NewQueryError("strict", "format", query.Get("strict"), "must be true or false")
	}
	if !strict {
		return nil
	}
	for name := range query {
		if name != "strict" && !slices.Contains(known, name) {
			return rest.NewQueryError(name, "enum", query.Get(name), "is not a known parameter; use one of %s", strings.Join(known, ", "))
		}
	}
	return nil
}

// A listRequest is a parsed list request.
type listRequest struct {
	scope Scope
	query Query
	// digest identifies the query by the parameters as the client wrote them: an age is another
	// time on the next page.
	digest rest.QueryDigest
}

func (t *Timeline) parseListRequest(r *http.Request, scope Scope, now time.Time) (*listRequest, error) {
	v := r.URL.Query()
	if err := rejectUnknownIfStrict(v, listFilterParameters("since", "until", "limit", "continue")...); err != nil {
		return nil, err
	}
	if v.Has("after") {
		return nil, rest.NewQueryError(
			"after",
			"format",
			v.Get("after"),
			"is only for streams; send Accept: text/event-stream, or use continue to page",
		)
	}
	filter, err := parseFilterParameters(v)
	if err != nil {
		return nil, err
	}
	l := &listRequest{scope: scope, query: Query{Filter: filter, NotBefore: now.Add(-t.retention), Limit: defaultLimit}}
	if l.query.Since, err = parseTimeParameter(v, "since", now); err != nil {
		return nil, err
	}
	if l.query.Until, err = parseTimeParameter(v, "until", now); err != nil {
		return nil, err
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxLimit {
			return nil, rest.NewQueryError("limit", "format", text, "must be from 1 to %d", maxLimit)
		}
		l.query.Limit = n
	}
	l.digest = rest.DigestQuery(
		append(filter.listCanonicalParts(), "changes", scope.Tenant, strconv.FormatBool(scope.All), v.Get("since"), v.Get("until"))...)
	return l, l.parseContinueToken(v.Get("continue"))
}

func (l *listRequest) parseContinueToken(token string) error {
	if token == "" {
		return nil
	}
	at, seq, err := rest.ParseTimeAndNumberPageToken(l.digest, token)
	if err != nil {
		return rest.NewQueryError("continue", "format", token, "is %s; use continue of the previous page and repeat all other parameters except limit", err)
	}
	l.query.After = Place{At: at, Seq: seq}
	return nil
}

func (t *Timeline) serveEventPage(w http.ResponseWriter, r *http.Request, scope Scope) error {
	l, err := t.parseListRequest(r, scope, time.Now())
	if err != nil {
		return err
	}
	query := l.query
	query.Limit++ // the extra row shows whether there is another page
	b := []byte(`{"items":[`)
	rows, hasMore := 0, false
	var last Place
	live, err := t.store.List(r.Context(), scope, query, func(row *Row) error {
		if rows == l.query.Limit || len(b) > pageBytes {
			hasMore = true
		}
		if hasMore {
			return nil
		}
		if rows++; rows > 1 {
			b = append(b, ',')
		}
		last = Place{row.At, row.Seq}
		b, err = appendEventJSON(b, row)
		return err
	})
	if err != nil {
		return toProblem(err)
	}
	b = append(b, ']')
	if hasMore {
		token := rest.NewTimeAndNumberPageToken(l.digest, last.At, last.Seq)
		b = append(append(append(b, `,"continue":"`...), token...), '"')
	}
	b = append(append(append(b, `,"cursor":"`...), live.String()...), `"}`...)
	rest.WriteJSON(w, http.StatusOK, b)
	return nil
}

// appendEventJSON appends an event in the form of a v1.ChangeEvent: the fields that the API recorded,
// followed by the unchanged payload.
func appendEventJSON(b []byte, event *Row) ([]byte, error) {
	head, err := json.Marshal(struct {
		Actor      string    `json:"actor"`
		RecordedAt time.Time `json:"recordedAt"`
		RecordedBy string    `json:"recordedBy,omitempty"`
		Tenant     string    `json:"tenant,omitempty"`
	}{event.Actor, event.RecordedAt.UTC(), event.RecordedBy, event.Tenant})
	if err != nil {
		return b, err
	}
	b = append(b, head[:len(head)-1]...)
	b = append(b, ',')
	return append(b, event.Payload[1:]...), nil // never {}: an event has an action
}
