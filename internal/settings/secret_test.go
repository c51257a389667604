package settings_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestSecretIsNeverShown(t *testing.T) {
	type holder struct {
		Token settings.Secret
		List  []settings.Secret
		Map   map[string]settings.Secret
		Ptr   *settings.Secret
	}
	token := settings.Secret("hunter2")
	h := holder{token, []settings.Secret{token}, map[string]settings.Secret{"a": token}, &token}

	shown := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s", "%-10.2s", "%U", "%z"} {
		shown[verb] = fmt.Sprintf(verb, token)
		shown["holder "+verb] = fmt.Sprintf(verb, h)
	}
	shown["print"] = fmt.Sprint(token, h)
	shown["error"] = fmt.Errorf("connect with %w and %v", fmt.Errorf("token %s", token), token).Error()

	asJSON, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	shown["json"] = string(asJSON)
	asYAML, err := yaml.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	shown["yaml"] = string(asYAML)

	var logged bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&logged, nil), slog.NewTextHandler(&logged, nil)} {
		slog.New(handler).Info("connect", "token", token, "holder", h, slog.Group("g", "token", token))
	}
	shown["log"] = logged.String()

	for how, text := range shown {
		if strings.Contains(text, "hunter") || strings.Contains(text, "68756e") {
			t.Errorf("%s shows the secret: %s", how, text)
		}
	}
	if !strings.Contains(shown["log"], "***") || !strings.Contains(shown["json"], `"Token":"***"`) || shown["%#v"] != `"***"` {
		t.Errorf("a secret that is there does not show as ***: %s, %s, %s", shown["log"], shown["json"], shown["%#v"])
	}
	if got := fmt.Sprintf("%v%s", settings.Secret(""), settings.Secret("")); got != "" {
		t.Errorf("no secret shows as %q, want nothing, so that one can see it is missing", got)
	}
	if token.Reveal() != "hunter2" {
		t.Errorf("Reveal() = %q, want the text", token.Reveal())
	}
}
