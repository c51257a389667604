package sentinelapp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// writeSettings writes the settings of the file one by one.
func (c *configConverter) writeSettings(name string) {
	c.writeLinef("# Converted from %s by `sentinel convert`.", sanitizeLine(name))
	c.writeLinef("resource_type: %s", c.in.ResourceType)
	c.writeDuration("poll_interval", c.in.PollInterval)
	c.writeAPI()
	c.writeSelector()
	c.writeDecision()
	c.writeData()
	c.writeLog()
	c.writeBroker()
	c.writeOmitted()
}

func (c *configConverter) writeLinef(format string, args ...any) {
	fmt.Fprintf(&c.out, format+"\n", args...)
}

// writeNotef notes why a setting is not in the result.
func (c *configConverter) writeNotef(key, format string, args ...any) {
	if c.given[key] {
		c.left = append(c.left, key+": "+fmt.Sprintf(format, args...))
	}
}

func (c *configConverter) writeDuration(key string, d time.Duration) {
	if d > 0 {
		c.writeLinef("%s: %s", key, formatShortDuration(d))
	}
}

// formatShortDuration formats a duration as 30m instead of 30m0s.
func formatShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (c *configConverter) writeAPI() {
	api := &c.in.Clients.API
	c.writeLinef("\nhyperfleet_api:")
	c.writeLinef("  endpoint: %s", quoteScalar(api.BaseURL))
	c.writeLinef("  flavour: hyperfleet")
	if api.Timeout > 0 {
		c.writeLinef("  timeout: %s", formatShortDuration(api.Timeout))
	}
	if api.PageSize > maxPublicPage {
		c.writeLinef("  # Was %d, which the public API rejects.", api.PageSize)
	}
	if api.PageSize > 0 {
		c.writeLinef("  page_size: %d", min(api.PageSize, maxPublicPage))
	}
	if api.Auth.TokenPath != "" {
		c.writeLinef("  token_file: %s", quoteScalar(api.Auth.TokenPath))
	}
	if len(api.DefaultHeaders) > 0 {
		c.writeLinef("  headers:")
	}
	for _, name := range slices.Sorted(maps.Keys(api.DefaultHeaders)) {
		c.writeLinef("    %s: %s", quoteScalar(name), quoteScalar(api.DefaultHeaders[name]))
	}
	const retry = "the next poll retries a failed request"
	c.writeNotef("clients.hyperfleet_api.version", "always v1")
	c.writeNotef("clients.hyperfleet_api.auth.token_cache_ttl", "not needed: the token file is read again when it changes")
	for _, key := range []string{"retry_attempts", "retry_backoff", "base_delay", "max_delay"} {
		c.writeNotef("clients.hyperfleet_api."+key, "not needed: %s", retry)
	}
}

func (c *configConverter) writeSelector() {
	if len(c.in.ResourceSelector) == 0 {
		return
	}
	c.writeLinef("\nresource_selector:")
	for _, p := range c.in.ResourceSelector {
		c.writeLinef("  - label: %s", quoteScalar(p.Label))
		c.writeLinef("    value: %s", quoteScalar(p.Value))
	}
}

func (c *configConverter) writeDecision() {
	d := &c.in.Decision
	if d.Result == "" {
		c.writeLinef("\n# The file had no rules. With this profile, a changed spec is due immediately, and everything else by its age.")
		c.writeLinef("decision:\n  profile: generation-then-age")
		c.writeDuration("max_age_not_ready", c.ages.NotReady)
		c.writeDuration("max_age_ready", c.ages.Ready)
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
		c.writeLinef("      expr: %s", quoteScalar(p.Expr))
	}
	c.writeLinef("  result: %s", quoteScalar(d.Result))
	if c.ages.NotReady > 0 {
		c.writeLinef("\n# Minimum time between two events for a resource that stays due, from the\n# durations in the rules. The public sentinel sent one in every poll.")
		c.writeDuration("max_age_not_ready", c.ages.NotReady)
		c.writeDuration("max_age_ready", c.ages.Ready)
	}
}

// writeData writes message_data with lower-case keys, as the public sentinel does, because the
// readers of its events depend on them.
func (c *configConverter) writeData() {
	if len(c.in.MessageData) == 0 {
		return
	}
	c.writeLinef("\n# A missing value is sent as an empty string. The public sentinel omits the key.")
	c.writeLinef("message_data:")
	c.writeEntries(prefixCEL(c.in.MessageData), "  ")
}

func (c *configConverter) writeEntries(data settings.OrderedMap, indent string) {
	for _, e := range data {
		key := strings.ToLower(e.Key)
		if key != e.Key {
			c.writeLinef("%s# Was %s; the public sentinel sends it in lower case.", indent, sanitizeLine(e.Key))
		}
		switch {
		case e.Map == nil:
			c.writeLinef("%s%s: %s", indent, quoteScalar(key), quoteScalar(e.Value))
		case len(e.Map) == 0:
			c.writeLinef("%s%s: {}", indent, quoteScalar(key))
		default:
			c.writeLinef("%s%s:", indent, quoteScalar(key))
			c.writeEntries(e.Map, indent+"  ")
		}
	}
}

func (c *configConverter) writeLog() {
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
	c.writeNotef("log.output", "logs always go to standard error")
	c.writeNotef("sentinel.name", "the CloudEvents source stays hyperfleet-sentinel; set OTEL_SERVICE_NAME for the service name in traces")
	c.writeNotef("debug_config", "run sentinel config show --origins to print the effective configuration")
	if c.in.TracingEnabled {
		c.writeNotef("tracing_enabled", "set OTEL_EXPORTER_OTLP_ENDPOINT to enable tracing")
	} else {
		c.writeNotef("tracing_enabled", "tracing is off unless OTEL_EXPORTER_OTLP_ENDPOINT is set")
	}
}

// writeBroker writes the variables of the broker. It names the source of settings that the public
// sentinel reads from elsewhere.
func (c *configConverter) writeBroker() {
	c.writeLinef("\n# The broker is configured by environment variables.")
	if topic := c.in.Clients.Broker.Topic; topic != "" {
		c.writeLinef("# From this file:\n#   export BROKER_TOPIC=%s", quoteShell(sanitizeLine(topic)))
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

func (c *configConverter) writeOmitted() {
	if len(c.left) == 0 {
		return
	}
	slices.Sort(c.left)
	c.writeLinef("\n# Omitted:")
	for _, why := range c.left {
		c.writeLinef("#   %s", sanitizeLine(why))
	}
}

// quoteScalar quotes a text as a YAML string.
func quoteScalar(s string) string {
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"} // that some readers do not read as strings
	switch {
	case isPlainIdentifier(s) && !slices.Contains(words, s):
		return s
	case sanitizeLine(s) == s:
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

// sanitizeLine returns a text on one line for a comment.
func sanitizeLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd {
			return '?'
		}
		return r
	}, s)
}

// quoteShell quotes a text as one word of a shell.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
