package sentinelapp

import (
	"bytes"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// manifest is a SentinelConfig in a file.
type manifest struct {
	name     string
	settings sentinelconfig.Settings
	part     inspect.Part // nil if it watches all selected resources
}

// maxManifest limits how much of a file is read to detect a manifest.
const maxManifest = 1 << 20

// readManifestIfSentinelConfig reads a file that holds a SentinelConfig. It returns nil for any
// other or missing file, because the configuration loader reports its errors.
func readManifestIfSentinelConfig(file string) (*manifest, error) {
	text := readFirstBytesOrNil(file)
	is := parseTypeMetaOrZero(text)
	if is.Kind != "SentinelConfig" {
		return nil, nil
	}
	if want := v1alpha1.GroupVersion.String(); is.APIVersion != want {
		return nil, fmt.Errorf("read %s: apiVersion is %q, want %q", file, is.APIVersion, want)
	}
	if bytes.Contains(text, []byte("\n---")) {
		return nil, fmt.Errorf("read %s: the file has several YAML documents; pass a file with only the SentinelConfig", file)
	}
	var sc v1alpha1.SentinelConfig
	if err := yaml.UnmarshalStrict(text, &sc); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	m := &manifest{name: sc.Name}
	var err error
	if m.settings, err = sentinelconfig.TranslateSpec(&sc.Spec); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if s := m.settings.Sharding; s.Mode == v1alpha1.ShardingStatic {
		if m.part, err = shard.NewStaticPart(s.Count, s.Index); err != nil {
			return nil, fmt.Errorf("read %s: spec.sharding: %w", file, err)
		}
	}
	return m, nil
}

// parseTypeMetaOrZero returns the type of the object in a text, or the zero value without an object.
func parseTypeMetaOrZero(text []byte) (is metav1.TypeMeta) {
	if err := yaml.Unmarshal(text, &is); err != nil {
		return metav1.TypeMeta{}
	}
	return is
}

// readFirstBytesOrNil reads the beginning of a file and ignores errors.
func readFirstBytesOrNil(file string) []byte {
	f, err := os.Open(file) //nolint:gosec // the user names the file
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text, _ := io.ReadAll(io.LimitReader(f, maxManifest)) // the parser reports a truncated file
	return text
}

// loadBrokerConfig returns the broker configuration of the manifest, or nil if it is in a Secret.
func (m *manifest) loadBrokerConfig(env func(string) (string, bool)) (*BrokerConfig, error) {
	b := m.settings.Broker
	if len(m.settings.SecretNames()) > 0 && b.URL == "" && b.Type != v1alpha1.BrokerPubSub {
		return nil, nil
	}
	return LoadExplicitBrokerConfig(convertBrokerSettings(b), env)
}

// convertBrokerSettings returns the broker settings of a SentinelConfig.
func convertBrokerSettings(b sentinelconfig.Broker) ExplicitBroker {
	return ExplicitBroker{
		Type:      BrokerType(b.Type),
		Topic:     b.Topic,
		ProjectID: b.ProjectID,
		KeyJSON:   b.KeyJSON,
		URL:       b.URL,
		Exchange:  b.Exchange,
	}
}
