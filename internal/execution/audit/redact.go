package audit

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	// withheld stands where something was left out because it may be secret.
	withheld = "[redacted]"
	// tooDeep stands where something was left out because it is too deep; the
	// database would refuse all of it.
	tooDeep  = "[nested too deeply]"
	maxDepth = 24
	// leastSecret is how long a secret text is at least that is looked for in
	// others. Shorter ones are words like "true" that stand everywhere.
	leastSecret = 4
)

// A redactor leaves out what may be secret of the execution that it is for.
type redactor struct {
	// aboutSecret is whether the execution acts on a Secret. Nothing that came
	// back from there is shown then, because it may repeat a value.
	aboutSecret bool
	// secrets are the texts that were left out of parameters: no message may
	// repeat them. They are collected first.
	secrets    []string
	collecting bool
}

// What secrets look like in texts, and are called.
var (
	secretName   = regexp.MustCompile(`(?i)passw|passphrase|pwd|secret|token|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|authorization|bearer|cookie|dsn$|\.(key|pem|p12|jks|pfx)$|dockerconfig|kubeconfig|htpasswd`)
	userinfo     = regexp.MustCompile(`(://[^/\s:@"']*:)[^/\s@"']+@`)
	assignment   = regexp.MustCompile(`(?i)((?:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|api[-_.]?key|access[-_.]?key|private[-_.]?key)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;}&]+)`)
	flag         = regexp.MustCompile(`^--?[A-Za-z][A-Za-z0-9_.-]*$`)
	flagged      = regexp.MustCompile(`(?i)(--?[a-z0-9_.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|api[-_.]?key|access[-_.]?key|private[-_.]?key)\s+)("[^"]*"|'[^']*'|[^\s,;}&]+)`)
	header       = regexp.MustCompile(`(?i)(authorization["']?\s*[=:]\s*["']?(?:[a-z]+\s+)?)[^\s"',;]+`)
	privateKey   = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	bearerToken  = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?|(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}`)
	secretObject = regexp.MustCompile(`(?im)^[\s{\["'-]*kind["']?\s*:\s*["']?Secret["']?\s*(,|}|$)`)
)

func newRedactor(ke *v1alpha1.KubernetesExecution) *redactor {
	r := &redactor{collecting: true}
	r.aboutSecret = strings.Contains(strings.ToLower(ke.Spec.Action), "secret") || targetOf(ke).Kind == "Secret"
	r.parameters(ke.Spec.Parameters)
	if back := ke.Status.RollbackInformation; back != nil {
		r.parameters(back.RollbackParameters)
		r.parameters(back.ExpectedCurrentValues)
	}
	if p := ke.Status.Plan; p != nil {
		r.parameters(p.Parameters)
		r.parameters(p.Before)
	}
	r.secrets, r.collecting = inAllSpellings(r.secrets), false
	return r
}

// parameters are those of an action without what may be secret.
func (r *redactor) parameters(p *runtime.RawExtension) any {
	if p == nil || len(p.Raw) == 0 && p.Object == nil {
		return nil
	}
	text, err := p.MarshalJSON()
	if err != nil {
		return withheld
	}
	v, err := decodeJSON(text)
	if err != nil {
		return withheld
	}
	return r.redactValue(v, place{secret: r.aboutSecret, names: true})
}

func decodeJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// A place is where in parameters a value is.
type place struct {
	depth int
	// secret is whether what is here is taken for secret.
	secret bool
	// names is whether the members here say which object is meant, which is not
	// secret. The members of a Secret's data may have the same names.
	names bool
	// key is whether a member key is one of them.
	key bool
}

// redactValue is v without what may be secret.
func (r *redactor) redactValue(v any, at place) any {
	if at.depth > maxDepth {
		return tooDeep
	}
	at.depth++
	switch v := v.(type) {
	case map[string]any:
		return r.redactMembers(v, at)
	case []any:
		return r.redactList(v, at)
	case string:
		if at.secret {
			return r.withholdText(v)
		}
		return r.redactEmbedded(v, at)
	case json.Number:
		if at.secret {
			return r.withholdText(v.String())
		}
		return storableNumber(v)
	}
	return v // true, false and null say nothing
}

// redactList is v, which may be a command: what follows a flag that is called like a
// secret is its value.
func (r *redactor) redactList(v []any, at place) []any {
	out := make([]any, len(v))
	for i, e := range v {
		in := at
		if i > 0 {
			before, _ := v[i-1].(string)
			in.secret = at.secret || flag.MatchString(before) && secretName.MatchString(before)
		}
		out[i] = r.redactValue(e, in)
	}
	return out
}

// redactMembers are those of an object.
func (r *redactor) redactMembers(v map[string]any, at place) map[string]any {
	kind, _ := v["kind"].(string)
	isSecret := strings.EqualFold(kind, "Secret")
	out := make(map[string]any, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		member := v[name]
		in := place{depth: at.depth, secret: at.secret, names: slices.Contains([]string{"metadata", "secretKeyRef", "secretRef"}, name), key: name == "secretKeyRef"}
		_, text := member.(string)
		switch {
		case text && (at.names || isSecret) && namesEntry(name), text && at.key && name == "key":
			in.secret = false
		case isSecret, isSecretName(v, name):
			in.secret = true
		}
		out[cleanText(r.redactText(name), maxText)] = r.redactValue(member, in)
	}
	return out
}

// namesEntry says whether a member says which object is meant.
func namesEntry(name string) bool {
	return slices.Contains([]string{"apiVersion", "kind", "namespace", "name", "secret", "secretName"}, name)
}

// isSecretName says whether a member is called like a secret, or is the value of
// something that is, as in {name: PASSWORD, value: …} and in patches.
func isSecretName(v map[string]any, member string) bool {
	if member == "value" {
		name, _ := v["name"].(string)
		path, _ := v["path"].(string)
		// Of the value at a place in a list the patch has no name.
		return secretName.MatchString(name) || secretName.MatchString(path) || strings.HasSuffix(path, "/value")
	}
	if _, text := v[member].(string); !text && strings.HasSuffix(member, "Secrets") {
		return false // a list of names
	}
	if strings.HasSuffix(member, "Ref") || strings.HasSuffix(member, "Name") {
		return false
	}
	return secretName.MatchString(member)
}

// redactEmbedded is a text, which may be JSON itself, as patches are.
func (r *redactor) redactEmbedded(text string, at place) any {
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if v, err := decodeJSON([]byte(trimmed)); err == nil {
			out, err := json.Marshal(r.redactValue(v, at))
			if err == nil {
				return cleanText(string(out), maxProse)
			}
		}
	}
	if secretObject.MatchString(text) {
		return r.withholdText(text)
	}
	return cleanText(r.redactText(text), maxProse)
}

// redactText is a text without what looks like a secret, or is one that is known.
func (r *redactor) redactText(text string) string {
	text = privateKey.ReplaceAllString(text, withheld)
	text = bearerToken.ReplaceAllString(text, withheld)
	text = userinfo.ReplaceAllString(text, "${1}"+withheld+"@")
	text = assignment.ReplaceAllString(text, "${1}"+withheld)
	text = header.ReplaceAllString(text, "${1}"+withheld)
	text = flagged.ReplaceAllString(text, "${1}"+withheld)
	for _, s := range r.secrets {
		text = strings.ReplaceAll(text, s, withheld)
	}
	return withoutBeginnings(text, r.secrets)
}

// redactMachineText is a text that no person wrote, and that may repeat what it is about.
func (r *redactor) redactMachineText(text string) string {
	if r.aboutSecret && text != "" {
		return withheld
	}
	return text
}

func (r *redactor) withholdText(text string) string {
	if r.collecting && len(text) >= leastSecret {
		r.secrets = append(r.secrets, text)
	}
	return withheld
}

// storableNumber is a number that the database can keep.
func storableNumber(n json.Number) any {
	if _, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return n
	}
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) {
		return cleanText(n.String(), maxText)
	}
	return f
}

// cleanText is a text that the database takes, of no more than most bytes.
func cleanText(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= most {
		return text
	}
	const more = "…"
	end := most - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
