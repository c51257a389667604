package changeevent

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of a Slack message, in characters. Slack accepts 3000 in a section.
const (
	slackChars = 3000
	slackShort = 600
	slackLine  = 280
)

// A slackMessage is a message to an incoming webhook. Notifications, and clients without
// support for blocks, show Text.
type slackMessage struct {
	Text   string       `json:"text"`
	Blocks []slackBlock `json:"blocks"`
	Unfurl bool         `json:"unfurl_links"`
}

// A slackBlock is a section, which has a text, or a context, which has elements.
type slackBlock struct {
	Type     string      `json:"type"`
	Text     *slackText  `json:"text,omitempty"`
	Elements []slackText `json:"elements,omitempty"`
}

type slackText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func encodeSlack(cfg encoding, batch []*ChangeEvent) (request, error) {
	var message slackMessage
	if len(batch) == 1 {
		message = slackMessageOf(payloadOf(cfg, batch[0]), batch[0])
	} else {
		message = slackBatchMessage(cfg, batch)
	}
	body, err := marshalJSON(message)
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeJSON}, nil
}

// slackMessageOf returns a message about one change, with the summary, the reason, the place
// and the time.
func slackMessageOf(p Payload, e *ChangeEvent) slackMessage {
	var text strings.Builder
	text.WriteString("*" + cutEscaped(p.Summary, slackShort, slackEscape) + "*")
	if p.HealthEvent != nil && p.HealthEvent.Message != "" {
		text.WriteString("\n" + cutEscaped(p.HealthEvent.Message, slackShort, slackEscape))
	}
	if p.Reason != "" && !strings.Contains(p.Summary, p.Reason) {
		text.WriteString("\n" + cutEscaped(p.Reason, slackShort, slackEscape))
	}
	for _, l := range p.Links {
		if link := "\n" + slackLink(l); text.Len()+len(link) <= slackChars {
			text.WriteString(link)
		}
	}
	where := []string{slackTime(e)}
	for _, part := range []string{p.Cluster, p.Source, p.Session} {
		if part != "" {
			where = append(where, slackEscape(part))
		}
	}
	return slackMessage{
		Text: cutEscaped(p.Summary, slackShort, slackEscape),
		Blocks: []slackBlock{
			slackSection(text.String()),
			{Type: "context", Elements: []slackText{{Type: "mrkdwn", Text: strings.Join(where, " · ")}}},
		},
	}
}

// slackBatchMessage returns one message about several changes, with a line for each, because a
// channel accepts one message per second.
func slackBatchMessage(cfg encoding, batch []*ChangeEvent) slackMessage {
	blocks := []slackBlock{slackSection("*" + slackEscape(summaryLine(batch)) + "*")}
	var lines strings.Builder
	flush := func() {
		if lines.Len() > 0 {
			blocks = append(blocks, slackSection(strings.TrimSuffix(lines.String(), "\n")))
			lines.Reset()
		}
	}
	for _, e := range batch {
		line := "• " + slackTime(e) + " " + cutEscaped(payloadOf(cfg, e).Summary, slackLine, slackEscape) + "\n"
		if lines.Len()+len(line) > slackChars {
			flush()
		}
		lines.WriteString(line)
	}
	flush()
	return slackMessage{Text: slackEscape(summaryLine(batch)), Blocks: blocks}
}

// summaryLine returns a line such as "12 changes in my-cluster". It omits the cluster if
// the events have different ones.
func summaryLine(batch []*ChangeEvent) string {
	text := strconv.Itoa(len(batch)) + " changes"
	cluster := batch[0].Cluster
	for _, e := range batch {
		if e.Cluster != cluster {
			return text
		}
	}
	if cluster == "" {
		return text
	}
	return text + " in " + shortLabel(cluster)
}

func slackSection(text string) slackBlock {
	return slackBlock{Type: "section", Text: &slackText{Type: "mrkdwn", Text: text}}
}

// slackTime returns a time that Slack shows in each reader's time zone.
func slackTime(e *ChangeEvent) string {
	return fmt.Sprintf("<!date^%d^{date_short_pretty} {time_secs}|%s>", e.Timestamp.Unix(), CanonicalTime(e.Timestamp))
}

func slackLink(l Link) string {
	if l.Text == "" {
		return "<" + slackHref(l.Href) + ">"
	}
	return "<" + slackHref(l.Href) + "|" + slackEscape(strings.ReplaceAll(l.Text, "|", "/")) + ">"
}

// slackHref escapes characters that would end a link early.
func slackHref(href string) string {
	return strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C", "\n", "", "\r", "").Replace(href)
}

// slackEscape escapes the characters that Slack would parse as a mention, a link or a
// command.
func slackEscape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
