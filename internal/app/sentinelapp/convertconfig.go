package sentinelapp

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// publicConfig is the configuration file of the public sentinel.
type publicConfig struct {
	Sentinel struct {
		Name string `key:"name"`
	} `key:"sentinel"`
	DebugConfig    bool `key:"debug_config"`
	TracingEnabled bool `key:"tracing_enabled"`
	Log            struct {
		Level  string `key:"level" validate:"omitempty,oneof=debug info warn error"`
		Format string `key:"format" validate:"omitempty,oneof=json text"`
		Output string `key:"output"`
	} `key:"log"`
	Clients struct {
		API struct {
			BaseURL  string        `key:"base_url" validate:"required,http_url"`
			Version  string        `key:"version"`
			Timeout  time.Duration `key:"timeout" validate:"gte=0"`
			PageSize int           `key:"page_size" validate:"gte=0,lte=500"`
			Auth     struct {
				TokenPath     string `key:"token_path"`
				TokenCacheTTL string `key:"token_cache_ttl"`
			} `key:"auth"`

			// Keys of older versions.
			RetryAttempts  string            `key:"retry_attempts"`
			RetryBackoff   string            `key:"retry_backoff"`
			BaseDelay      string            `key:"base_delay"`
			MaxDelay       string            `key:"max_delay"`
			DefaultHeaders map[string]string `key:"default_headers"`
		} `key:"hyperfleet_api"`
		Broker struct {
			Topic string `key:"topic"`
		} `key:"broker"`
	} `key:"clients"`
	ResourceType     string          `key:"resource_type" validate:"required,oneof=clusters nodepools manifests workloads"`
	PollInterval     time.Duration   `key:"poll_interval" validate:"gte=0"`
	ResourceSelector []selector.Pair `key:"resource_selector" validate:"dive"`
	Decision         struct {
		Params []decision.ExpressionParam `key:"params" validate:"dive"`
		Result string                     `key:"result"`
	} `key:"message_decision"`
	MessageData settings.OrderedMap `key:"message_data"`

	// Keys from before rules existed.
	MaxAgeNotReady time.Duration `key:"max_age_not_ready" validate:"gte=0"`
	MaxAgeReady    time.Duration `key:"max_age_ready" validate:"gte=0"`
}

// maxPublicPage is the largest page size of the public API.
const maxPublicPage = 100

// ConvertPublicConfig turns a configuration file of the public HyperFleet sentinel into an equivalent
// Fleetloop configuration. Name is the name of the file in errors.
//
// It works on bytes alone, without network access. It drops settings that Fleetloop does not need,
// and comments in the result give the reasons. A key that the public sentinel does not have either,
// or a value that Fleetloop does not support, is an error with file, line and column.
func ConvertPublicConfig(fileName string, text []byte) ([]byte, error) {
	var in publicConfig
	report, err := settings.Load(&in, settings.Source{File: fileName, FileData: text})
	if err != nil {
		return nil, err
	}
	c := &configConverter{in: &in, given: map[string]bool{}}
	for _, o := range report.Origins() {
		c.given[o.Key] = o.Source == settings.FromFile
	}
	c.ages = c.inferMaxAges()
	if err := c.validateInput(report); err != nil {
		return nil, err
	}
	c.writeConversionOf(fileName)
	return []byte(c.out.String()), nil
}

type configConverter struct {
	in    *publicConfig
	given map[string]bool
	ages  decision.Ages
	out   strings.Builder
	left  []string // omitted settings with reasons
}

// validateInput compiles the expressions of the result, so that an error refers to the input file.
func (c *configConverter) validateInput(report *settings.Report) error {
	var errs []error
	if u, err := url.Parse(c.in.Clients.API.BaseURL); err == nil && u.User != nil {
		errs = append(errs, report.WrapWithOrigin("clients.hyperfleet_api.base_url",
			errors.New("must not contain a user name or password; remove them and set clients.hyperfleet_api.auth.token_path")))
	}
	if c.given["clients.hyperfleet_api.version"] && c.in.Clients.API.Version != "v1" {
		errs = append(
			errs,
			report.WrapWithOrigin("clients.hyperfleet_api.version", fmt.Errorf("is %q; only v1 is supported", c.in.Clients.API.Version)),
		)
	}
	if _, err := selector.FromPairs(c.in.ResourceSelector); err != nil {
		errs = append(errs, report.WrapWithOrigin("resource_selector", err))
	}
	errs = append(errs, c.validateRules(report))
	_, err := payload.New(prefixValuesWithCEL(c.in.MessageData), payload.SnakeCase)
	errs = append(errs, sentinel.WrapKeyErrors(err, report.WrapWithOrigin))
	return errors.Join(errs...)
}

// validateRules compiles the rules. Each param can refer to earlier ones, so the first one that does
// not compile is wrong.
func (c *configConverter) validateRules(report *settings.Report) error {
	d := c.in.Decision
	for i := range d.Params {
		if _, err := decision.NewExpressionProfile(d.Params[:i+1], "true", c.ages); err != nil {
			return report.WrapWithOrigin(fmt.Sprintf("message_decision.params[%d].expr", i), err)
		}
	}
	if d.Result == "" {
		if len(d.Params) > 0 {
			return report.WrapWithOrigin("message_decision", errors.New("has params but no result, so no resource would be due; set result"))
		}
		return nil
	}
	_, err := decision.NewExpressionProfile(d.Params, d.Result, c.ages)
	return report.WrapWithOrigin("message_decision.result", err)
}

// prefixValuesWithCEL marks the values of message_data as expressions.
func prefixValuesWithCEL(data settings.OrderedMap) settings.OrderedMap {
	data = slices.Clone(data)
	for i := range data {
		if data[i].Map != nil {
			data[i].Map = prefixValuesWithCEL(data[i].Map)
			continue
		}
		data[i].Value = "cel:" + data[i].Value
	}
	return data
}

func durationLiteral() *regexp.Regexp {
	return regexp.MustCompile(`duration\(\s*["']([^"']+)["']\s*\)`)
}

// inferMaxAges returns how long an announcement is valid. A file with rules defines it by their
// durations: the shortest applies to resources that are not ready, the longest to ready ones.
func (c *configConverter) inferMaxAges() decision.Ages {
	ages := decision.Ages{NotReady: c.in.MaxAgeNotReady, Ready: c.in.MaxAgeReady}
	var found []time.Duration
	exprs := []string{c.in.Decision.Result}
	for _, p := range c.in.Decision.Params {
		exprs = append(exprs, p.Expr)
	}
	for _, m := range durationLiteral().FindAllStringSubmatch(strings.Join(exprs, "\n"), -1) {
		if d, err := time.ParseDuration(m[1]); err == nil && d > 0 {
			found = append(found, d)
		}
	}
	if len(found) > 0 {
		ages.NotReady, ages.Ready = slices.Min(found), slices.Max(found)
	}
	return ages
}
