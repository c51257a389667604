package history

import "strings"

// An Elsewhere is a promise that no history shows. Tests of packages keep it.
type Elsewhere struct {
	Promise string
	Command string   // what runs the tests
	Tests   []string // folder of the package and name of the test
}

// PromisesCheckedElsewhere returns the promises that no history shows.
func PromisesCheckedElsewhere() []Elsewhere {
	return []Elsewhere{
		{"R15 no crash on hostile input", "make test", []string{
			"internal/settings FuzzLoad", "internal/sentinel/sentinelconfig FuzzTranslate", "internal/selector FuzzParse",
			"internal/cloudevent FuzzParse", "changeevent FuzzDecode", "internal/fleetapi/rest FuzzReadBody", "internal/fleetapi/search FuzzParse",
			"internal/policy FuzzCheckInput", "internal/policy FuzzCondition", "internal/nodefault/intake FuzzHealthEvents",
			"internal/nodefault/intake FuzzAlerts", "internal/sentinel/payload FuzzTemplate", "internal/jsontemplate FuzzGenerated",
		}},
		{"R16 no races and known vulnerabilities", "make test, with the race detector, and make vuln", nil},
		{"R18 fakes behave as the real servers", "make test", []string{
			"internal/broker/nats TestSuite", "internal/broker/amqp TestSuite", "internal/broker/pubsub TestSuite",
			"internal/gardener TestSuite", "internal/gardener/memory TestSuite", "internal/nodefault/remediation TestRealServer",
			"internal/sampleadapter TestConformance",
		}},
	}
}

// String returns a line of the report.
func (e Elsewhere) String() string {
	line := e.Promise + ": shown by " + e.Command
	if len(e.Tests) > 0 {
		line += ": " + strings.Join(e.Tests, ", ")
	}
	return line
}
