package alerts_test

import (
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

// A ruleLoader reads each file of rules once, for all scenarios.
type ruleLoader struct {
	parser parser.Parser

	mu    sync.Mutex
	files map[string]parsedFile
}

type parsedFile struct {
	groups *rulefmt.RuleGroups
	errs   []error
}

var loader rules.GroupLoader = &ruleLoader{parser: parser.NewParser(parser.Options{}), files: map[string]parsedFile{}}

// Load parses and checks a file as Prometheus does.
func (l *ruleLoader) Load(name string, ignoreUnknown bool, scheme model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, ok := l.files[name]
	if !ok {
		file.groups, file.errs = rulefmt.ParseFile(name, ignoreUnknown, scheme, l.parser, promslog.NewNopLogger())
		l.files[name] = file
	}
	return file.groups, file.errs
}

// Parse parses an expression. Each scenario has expressions of its own.
func (l *ruleLoader) Parse(query string) (parser.Expr, error) {
	return l.parser.ParseExpr(query)
}
