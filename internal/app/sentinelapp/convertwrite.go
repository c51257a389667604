package sentinelapp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// writeConversionOf writes the settings of the file one by one.
func (c *configConverter) writeConversionOf(sourceFile string) {
	c.writeLinef("# Converted from %s by `sentinel convert`.", replaceControlChars(sourceFile))
	c.writeLinef("resource_type: %s", c.in.ResourceType)
	c.writeDurationIfPositive("poll_interval", c.in.PollInterval)
	c.writeAPISection()
	c.writeSelectorSection()
	c.writeDecisionSection()
	c.writeMessageData()
	c.writeLogSection()
	c.writeBrokerComments()
	c.writeOmittedComments()
}

func (c *configConverter) writeLinef(format string, args ...any) {
	fmt.Fprintf(&c.out, format+"\n", args...)
}

// addOmittedNotef notes why a setting is not in the result.
func (c *configConverter) addOmittedNotef(key, format string, args ...any) {
	if c.given[key] {
		c.left = append(c.left, key+": "+fmt.Sprintf(format, args...))
	}
}

func (c *configConverter) writeDurationIfPositive(key string, d time.Duration) {
	if d > 0 {
		c.writeLinef("%s: %s", key, inspect.FormatShortDuration(d))
	}
}

func (c *configConverter) writeAPISection() {
	api := &c.in.Clients.API
	c.writeLinef("\nhyperfleet_api:")
	c.writeLinef("  endpoint: %s", quoteYAML(api.BaseURL))
	c.writeLinef("  flavour: hyperfleet")
	if api.Timeout > 0 {
		c.writeLinef("  timeout: %s", inspect.FormatShortDuration(api.Timeout))
	}
	if api.PageSize > maxPublicPage {
		c.writeLinef("  # Was %d, which the public API rejects.", api.PageSize)
	}
	if api.PageSize > 0 {
		c.writeLinef("  page_size: %d", min(api.PageSize, maxPublicPage))
	}
	if api.Auth.TokenPath != "" {
		c.writeLinef("  token_file: %s", quoteYAML(api.Auth.TokenPath))
	}
	if len(api.DefaultHeaders) > 0 {
		c.writeLinef("  headers:")
	}
	for _, name := range slices.Sorted(maps.Keys(api.DefaultHeaders)) {
		c.writeLinef("    %s: %s", quoteYAML(name), quoteYAML(api.DefaultHeaders[name]))
	}
	const retry = "the next poll retries a failed request"
	c.addOmittedNotef("clients.hyperfleet_api.version", "always v1")
	c.addOmittedNotef("clients.hyperfleet_api.auth.token_cache_ttl", "not needed: the token file is read again when it changes")
	for _, key := range []string{"retry_attempts", "retry_backoff", "base_delay", "max_delay"} {
		c.addOmittedNotef("clients.hyperfleet_api."+key, "not needed: %s", retry)
	}
}

func (c *configConverter) writeSelectorSection() {
	if len(c.in.ResourceSelector) == 0 {
		return
	}
	c.writeLinef("\nresource_selector:")
	for _, p := range c.in.ResourceSelector {
		c.writeLinef("  - label: %s", quoteYAML(p.Label))
		c.writeLinef("    value: %s", quoteYAML(p.Value))
	}
}

func (c *configConverter) writeDecisionSection() {
	d := &c.in.Decision
	if d.Result == "" {
		c.writeLinef("\n# The file had no rules. With this profile, a changed spec is due immediately, and everything else by its age.")
		c.writeLinef("decision:\n  profile: generation-then-age")
		c.writeDurationIfPositive("max_age_not_ready", c.ages.NotReady)
		c.writeDurationIfPositive("max_age_ready", c.ages.Ready)
		return
	}
	c.writeLinef(`
# The rules of the file, unchanged. With the default rules of the public sentinel
# a new or changed resource is due only by its age, because the API counts a
# generation as observed immediately. To publish it in the next poll, replace
# this section with:
#   decision:
#     profile: generation-then-age
decision:
  profile: expression`)
	if len(d.Params) > 0 {
		c.writeLinef("  params:")
	}
	for _, p := range d.Params {
		c.writeLinef("    - name: %s", p.Name)
		c.writeLinef("      expr: %s", quoteYAML(p.Expr))
	}
	c.writeLinef("  result: %s", quoteYAML(d.Result))
	if c.ages.NotReady > 0 {
		c.writeLinef(
			"\n# Minimum time between two events for a resource that stays due, from the\n# durations in the rules. The public sentinel sent one in every poll.",
		)
		c.writeDurationIfPositive("max_age_not_ready", c.ages.NotReady)
		c.writeDurationIfPositive("max_age_ready", c.ages.Ready)
	}
}

// writeMessageData writes message_data with lower-case keys, as the public sentinel does, because the
// readers of its events depend on them.
func (c *configConverter) writeMessageData() {
	if len(c.in.MessageData) == 0 {
		return
	}
	c.writeLinef("\n# A missing value is sent as an empty string. The public sentinel omits the key.")
	c.writeLinef("message_data:")
	c.writeMapEntries(prefixValuesWithCEL(c.in.MessageData), "  ")
}

func (c *configConverter) writeMapEntries(data settings.OrderedMap, indent string) {
	for _, e := range data {
		key := strings.ToLower(e.Key)
		if key != e.Key {
			c.writeLinef("%s# Was %s; the public sentinel sends it in lower case.", indent, replaceControlChars(e.Key))
		}
		switch {
		case e.Map == nil:
			c.writeLinef("%s%s: %s", indent, quoteYAML(key), quoteYAML(e.Value))
		case len(e.Map) == 0:
			c.writeLinef("%s%s: {}", indent, quoteYAML(key))
		default:
			c.writeLinef("%s%s:", indent, quoteYAML(key))
			c.writeMapEntries(e.Map, indent+"  ")
		}
	}
}

func (c *configConverter) writeLogSection() {
	l := &c.in.Log
	if l.Level != "" || l.Format != "" {
		c.writeLinef("\nlog:")
	}
	if l.Level != "" {
		c.writeLinef("  level: %s", l.Level)
	}
	if l.Format != "" {
		c.writeLinef("  format: %s", l.Format)
	}
	c.addOmittedNotef("log.output", "logs always go to standard error")
	c.addOmittedNotef("sentinel.name",
		"the CloudEvents source stays hyperfleet-sentinel; set OTEL_SERVICE_NAME for the service name in traces")
	c.addOmittedNotef("debug_config", "run sentinel config show --origins to print the effective configuration")
	if c.in.TracingEnabled {
		c.addOmittedNotef("tracing_enabled", "set OTEL_EXPORTER_OTLP_ENDPOINT to enable tracing")
	} else {
		c.addOmittedNotef("tracing_enabled", "tracing is off unless OTEL_EXPORTER_OTLP_ENDPOINT is set")
	}
}

// writeBrokerComments writes the variables of the broker. It names the source of settings that the
// public sentinel reads from elsewhere.
func (c *configConverter) writeBrokerComments() {
	c.writeLinef("\n# The broker is configured by environment variables.")
	if topic := c.in.Clients.Broker.Topic; topic != "" {
		c.writeLinef("# From this file:\n#   export BROKER_TOPIC=%s", quoteShell(replaceControlChars(topic)))
	}
	c.writeLinef(`# For RabbitMQ, because the public sentinel uses an empty routing key:
#   export BROKER_ROUTING_KEY=none
# Not in this file; the public sentinel reads these values from broker.yaml:
#   BROKER_TYPE            broker.type; rabbitmq, or pubsub for googlepubsub
#   BROKER_URL             broker.rabbitmq.url, or the variable BROKER_RABBITMQ_URL
#   BROKER_EXCHANGE_TYPE   broker.rabbitmq.exchange_type; its chart sets topic
#   BROKER_PROJECT_ID      broker.googlepubsub.project_id`)
	if c.in.Clients.Broker.Topic == "" {
		c.writeLinef("# The file has no clients.broker.topic:\n#   BROKER_TOPIC           topic, or RabbitMQ exchange; default hyperfleet-events")
	}
}

func (c *configConverter) writeOmittedComments() {
	if len(c.left) == 0 {
		return
	}
	slices.Sort(c.left)
	c.writeLinef("\n# Omitted:")
	for _, why := range c.left {
		c.writeLinef("#   %s", replaceControlChars(why))
	}
}

// quoteYAML quotes a text as a YAML string.
func quoteYAML(s string) string {
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"} // that some readers do not read as strings
	switch {
	case isPlainIdentifier(s) && !slices.Contains(words, s):
		return s
	case replaceControlChars(s) == s:
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	// JSON is valid YAML and escapes special characters.
	b, err := json.Marshal(s)
	if err != nil {
		return "''" // marshalling a string never fails
	}
	return string(b)
}

// isPlainIdentifier reports whether s has only letters, digits and underscores and cannot be read as a
// number.
func isPlainIdentifier(s string) bool {
	for i, r := range s {
		if (r < 'a' || r > 'z') && r != '_' && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && s[0] != '_'
}

// replaceControlChars returns a text on one line for a comment.
func replaceControlChars(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd {
			return '?'
		}
		return r
	}, s)
}

// quoteShell quotes a text as one word of a shell.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
