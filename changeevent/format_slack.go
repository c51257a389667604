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

func encodeSlack(cfg encodeSettings, batch []*ChangeEvent) (request, error) {
	var message slackMessage
	if len(batch) == 1 {
		message = slackMessageOfOne(newPayload(cfg, batch[0]), batch[0])
	} else {
		message = slackBatchMessage(cfg, batch)
	}
	body, err := marshalJSONWithoutHTMLEscapes(message)
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeJSON}, nil
}

// slackMessageOfOne returns a message about one change, with the summary, the reason, the place
// and the time.
func slackMessageOfOne(p Payload, e *ChangeEvent) slackMessage {
	var text strings.Builder
	text.WriteString("*" + escapeWithinLimit(p.Summary, slackShort, escapeSlackText) + "*")
	if p.HealthEvent != nil && p.HealthEvent.Message != "" {
		text.WriteString("\n" + escapeWithinLimit(p.HealthEvent.Message, slackShort, escapeSlackText))
	}
	if p.Reason != "" && !strings.Contains(p.Summary, p.Reason) {
		text.WriteString("\n" + escapeWithinLimit(p.Reason, slackShort, escapeSlackText))
	}
	for _, l := range p.Links {
		if link := "\n" + slackLink(l); text.Len()+len(link) <= slackChars {
			text.WriteString(link)
		}
	}
	where := []string{slackTime(e)}
	for _, part := range []string{p.Cluster, p.Source, p.Session} {
		if part != "" {
			where = append(where, escapeSlackText(part))
		}
	}
	return slackMessage{
		Text: escapeWithinLimit(p.Summary, slackShort, escapeSlackText),
		Blocks: []slackBlock{
			slackSection(text.String()),
			{Type: "context", Elements: []slackText{{Type: "mrkdwn", Text: strings.Join(where, " · ")}}},
		},
	}
}

// slackBatchMessage returns one message about several changes, with a line for each, because a
// channel accepts one message per second.
func slackBatchMessage(cfg encodeSettings, batch []*ChangeEvent) slackMessage {
	blocks := []slackBlock{slackSection("*" + escapeSlackText(changeCountLine(batch)) + "*")}
	var lines strings.Builder
	flush := func() {
		if lines.Len() > 0 {
			blocks = append(blocks, slackSection(strings.TrimSuffix(lines.String(), "\n")))
			lines.Reset()
		}
	}
	for _, e := range batch {
		line := "• " + slackTime(e) + " " + escapeWithinLimit(newPayload(cfg, e).Summary, slackLine, escapeSlackText) + "\n"
		if lines.Len()+len(line) > slackChars {
			flush()
		}
		lines.WriteString(line)
	}
	flush()
	return slackMessage{Text: escapeSlackText(changeCountLine(batch)), Blocks: blocks}
}

// changeCountLine returns a line such as "12 changes in my-cluster". It omits the cluster if
// the events have different ones.
func changeCountLine(batch []*ChangeEvent) string {
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
	return text + " in " + sanitizeLabel(cluster)
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
		return "<" + escapeSlackURL(l.Href) + ">"
	}
	return "<" + escapeSlackURL(l.Href) + "|" + escapeSlackText(strings.ReplaceAll(l.Text, "|", "/")) + ">"
}

// escapeSlackURL escapes characters that would end a link early.
func escapeSlackURL(href string) string {
	return strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C", "\n", "", "\r", "").Replace(href)
}

// escapeSlackText escapes the characters that Slack would parse as a mention, a link or a
// command.
func escapeSlackText(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
