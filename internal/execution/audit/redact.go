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
	// withheld replaces text that may be secret.
	withheld = "[redacted]"
	// tooDeep replaces values nested too deeply, which would make the database reject the whole
	// record.
	tooDeep  = "[nested too deeply]"
	maxDepth = 24
	// leastSecret is the minimum length of a secret that is searched for in other texts. Shorter
	// ones are common words such as "true".
	leastSecret = 4
)

// A redactor removes possible secrets from the records of one execution.
type redactor struct {
	// aboutSecret means that the execution acts on a Secret. Responses are withheld then, because
	// they may repeat a value.
	aboutSecret bool
	// secrets are the texts withheld from parameters, which messages must not repeat. They are
	// collected first.
	secrets    []string
	collecting bool
}

// Patterns of secrets in texts, and of their names.
var (
	secretName = regexp.MustCompile(
		`(?i)passw|passphrase|pwd|secret|token|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|authorization|bearer|cookie|dsn$|\.(key|pem|p12|jks|pfx)$|dockerconfig|kubeconfig|htpasswd`,
	)
	userinfo   = regexp.MustCompile(`(://[^/\s:@"']*:)[^/\s@"']+@`)
	assignment = regexp.MustCompile(
		`(?i)((?:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|api[-_.]?key|access[-_.]?key|private[-_.]?key)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;}&]+)`,
	)
	flag    = regexp.MustCompile(`^--?[A-Za-z][A-Za-z0-9_.-]*$`)
	flagged = regexp.MustCompile(
		`(?i)(--?[a-z0-9_.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|api[-_.]?key|access[-_.]?key|private[-_.]?key)\s+)("[^"]*"|'[^']*'|[^\s,;}&]+)`,
	)
	header       = regexp.MustCompile(`(?i)(authorization["']?\s*[=:]\s*["']?(?:[a-z]+\s+)?)[^\s"',;]+`)
	privateKey   = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	bearerToken  = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?|(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}`)
	secretObject = regexp.MustCompile(`(?im)^[\s{\["'-]*kind["']?\s*:\s*["']?Secret["']?\s*(,|}|$)`)
)

func newRedactor(ke *v1alpha1.KubernetesExecution) *redactor {
	r := &redactor{collecting: true}
	r.aboutSecret = strings.Contains(strings.ToLower(ke.Spec.Action), "secret") || targetOf(ke).Kind == "Secret"
	r.redactParameters(ke.Spec.Parameters)
	if back := ke.Status.RollbackInformation; back != nil {
		r.redactParameters(back.RollbackParameters)
		r.redactParameters(back.ExpectedCurrentValues)
	}
	if p := ke.Status.Plan; p != nil {
		r.redactParameters(p.Parameters)
		r.redactParameters(p.Before)
	}
	r.collecting = false
	r.secrets = addEncodingsAndDecodings(r.secrets)
	return r
}

// redactParameters returns the parameters of an action without possible secrets.
func (r *redactor) redactParameters(p *runtime.RawExtension) any {
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
	return r.redactValue(v, valueContext{secret: r.aboutSecret, names: true})
}

func decodeJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// A valueContext is the context of a value within parameters.
type valueContext struct {
	depth int
	// secret means that the value is treated as secret.
	secret bool
	// names means that members such as name and kind identify an object and are not secret. The
	// members of the data of a Secret may have the same names.
	names bool
	// key means that a member key is not secret either.
	key bool
}

// redactValue returns v without possible secrets.
func (r *redactor) redactValue(v any, at valueContext) any {
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
			return r.collectAndWithhold(v)
		}
		return r.redactTextOrJSON(v, at)
	case json.Number:
		if at.secret {
			return r.collectAndWithhold(v.String())
		}
		return storableNumber(v)
	}
	return v // true, false and null reveal nothing
}

// redactList returns v without possible secrets. v may be a command, where the value of a
// secret-like flag follows the flag.
func (r *redactor) redactList(v []any, at valueContext) []any {
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

// redactMembers redacts the members of an object.
func (r *redactor) redactMembers(v map[string]any, at valueContext) map[string]any {
	kind, _ := v["kind"].(string)
	isSecret := strings.EqualFold(kind, "Secret")
	out := make(map[string]any, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		member := v[name]
		in := valueContext{
			depth:  at.depth,
			secret: at.secret || isSecret || isSecretMember(v, name),
			names:  slices.Contains([]string{"metadata", "secretKeyRef", "secretRef"}, name),
			key:    name == "secretKeyRef",
		}
		identifies := (at.names || isSecret) && isIdentifyingMember(name) || at.key && name == "key"
		if _, isText := member.(string); isText && identifies {
			in.secret = false
		}
		out[sanitizeAndTruncate(r.redactText(name), maxText)] = r.redactValue(member, in)
	}
	return out
}

// isIdentifyingMember reports whether a member identifies an object.
func isIdentifyingMember(name string) bool {
	return slices.Contains([]string{"apiVersion", "kind", "namespace", "name", "secret", "secretName"}, name)
}

// isSecretMember reports whether a member has a secret-like name, or is the value of such an entry,
// as in {name: PASSWORD, value: …} and in patches.
func isSecretMember(object map[string]any, member string) bool {
	if member == "value" {
		name, _ := object["name"].(string)
		path, _ := object["path"].(string)
		// For a value in a list, the patch does not contain the name.
		return secretName.MatchString(name) || secretName.MatchString(path) || strings.HasSuffix(path, "/value")
	}
	if _, text := object[member].(string); !text && strings.HasSuffix(member, "Secrets") {
		return false // a list of names
	}
	if strings.HasSuffix(member, "Ref") || strings.HasSuffix(member, "Name") {
		return false
	}
	return secretName.MatchString(member)
}

// redactTextOrJSON redacts a text that may itself be JSON, such as a patch.
func (r *redactor) redactTextOrJSON(text string, at valueContext) any {
	trimmed := strings.TrimSpace(text)
	if strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if v, err := decodeJSON([]byte(trimmed)); err == nil {
			redacted, err := json.Marshal(r.redactValue(v, at))
			if err == nil {
				return sanitizeAndTruncate(string(redacted), maxProse)
			}
		}
	}
	if secretObject.MatchString(text) {
		return r.collectAndWithhold(text)
	}
	return sanitizeAndTruncate(r.redactText(text), maxProse)
}

// redactText returns a text without known secrets and secret-like parts.
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
	return withholdTruncatedSecrets(text, r.secrets)
}

// withholdIfSecretTarget replaces a text of a program if the execution acts on a Secret, because the
// text may repeat its input.
func (r *redactor) withholdIfSecretTarget(text string) string {
	if r.aboutSecret && text != "" {
		return withheld
	}
	return text
}

func (r *redactor) collectAndWithhold(text string) string {
	if r.collecting && len(text) >= leastSecret {
		r.secrets = append(r.secrets, text)
	}
	return withheld
}

// storableNumber returns a number in a form that the database can store.
func storableNumber(n json.Number) any {
	if _, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return n
	}
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) {
		return sanitizeAndTruncate(n.String(), maxText)
	}
	return f
}

// sanitizeAndTruncate returns a text that the database accepts, limited to maxBytes bytes.
func sanitizeAndTruncate(text string, maxBytes int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= maxBytes {
		return text
	}
	const more = "…"
	end := maxBytes - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
