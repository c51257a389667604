package action

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The formats of parameters.
const (
	formatLabel          = "dns-label"        // of namespaces and containers
	formatSubdomain      = "dns-subdomain"    // of most names
	formatLabelKey       = "label-key"        // of labels, annotations and taints
	formatLabelValue     = "label-value"      // of labels and taints
	formatConfigKey      = "config-key"       // of the data of ConfigMaps and Secrets
	formatImage          = "image"            // of containers
	formatQuantity       = "quantity"         // such as 500m or 2Gi, not negative
	formatQuantityOrNone = "quantity-or-none" // the same, or "none"
	formatDuration       = "duration"         // such as 90s or 5m, not negative
	formatText           = "text"             // one line that can be printed
	none                 = "none"             // the special value for no quantity
	maxImage             = 512                // characters
	maxText              = 1024               // characters
)

// imagePattern matches an image reference: an optional registry with a port, a
// path, an optional tag and an optional digest. It excludes a leading dash and
// spaces, so that a reference cannot act as a command-line flag.
var imagePattern = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?` +
	`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*` +
	`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`)

// checkFormat returns a value in the notation of the API server, or the problem with it.
func checkFormat(format, value string) (normalized, problem string) {
	switch format {
	case "":
		return value, ""
	case formatLabel:
		return value, problemIfAny(validation.IsDNS1123Label(value), "must be a DNS label, such as web-1")
	case formatSubdomain:
		return value, problemIfAny(validation.IsDNS1123Subdomain(value), "must be a DNS name, such as web-1 or web.shop")
	case formatLabelKey:
		return value, problemIfAny(validation.IsQualifiedName(value), "must be a label key, such as app or example.com/app")
	case formatLabelValue:
		return value, problemIfAny(validation.IsValidLabelValue(value), "must be a label value: up to 63 letters, digits, '-', '_' or '.'")
	case formatConfigKey:
		return value, problemIfAny(validation.IsConfigMapKey(value), "must be a key of up to 253 letters, digits, '-', '_' or '.'")
	case formatImage:
		if len(value) > maxImage || !imagePattern.MatchString(value) {
			return "", "must be an image, such as registry.example.com/web:1.2"
		}
		return value, ""
	case formatText:
		if len(value) > maxText || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Sprintf("must be one line of at most %d characters", maxText)
		}
		return value, ""
	case formatQuantityOrNone:
		if value == none {
			return value, ""
		}
		return checkQuantity(value)
	case formatQuantity:
		return checkQuantity(value)
	case formatDuration:
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return "", "must be a duration, such as 90s or 5m"
		}
		return d.String(), ""
	}
	return "", "has the unknown format " + format // fail closed
}

func checkQuantity(value string) (normalized, problem string) {
	const want = "must be a quantity, such as 500m or 2Gi"
	if len(value) > validation.LabelValueMaxLength {
		return "", want
	}
	q, err := resource.ParseQuantity(value)
	if err != nil || q.Sign() < 0 {
		return "", want
	}
	return q.String(), ""
}

// problemIfAny returns problem if the library found any.
func problemIfAny(found []string, problem string) string {
	if len(found) == 0 {
		return ""
	}
	return problem
}
