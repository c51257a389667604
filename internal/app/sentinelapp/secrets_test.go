package sentinelapp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestConfigShowOrigins(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, "resource_type: clusters\nmax_age_ready: 1h\nhyperfleet_api:\n  endpoint: http://127.0.0.1:1\n  token: canary-of-the-file\n")
	env := map[string]string{
		"HYPERFLEET_API_TOKEN": "canary-of-the-environment", "SENTINEL_POLL_INTERVAL": "7s",
		"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "rabbit", "BROKER_USERNAME": "sentinel", "BROKER_PASSWORD": "canary-of-the-broker",
	}
	got := runCLI(t.Context(), t, env, "config", "show", "--origins", "--config", file, "--max-age-not-ready", "3s")
	if got.err != nil {
		t.Fatal(got.err)
	}
	lines := strings.Split(got.stdout, "\n")
	for key, want := range map[string][]string{
		"resource_type":     {"clusters", "file " + file + ":1"},
		"max_age_ready":     {"1h0m0s", "file " + file + ":2"},
		"poll_interval":     {"7s", "env SENTINEL_POLL_INTERVAL"},
		"max_age_not_ready": {"3s", "flag --max-age-not-ready"},
		"timeout":           {"10s", "default"},
		"token":             {"***", "env HYPERFLEET_API_TOKEN"},
		"host":              {"rabbit", "env BROKER_HOST"},
		"password":          {"***", "env BROKER_PASSWORD"},
	} {
		if !hasLine(lines, key, want) {
			t.Errorf("no line for %s with %q:\n%s", key, want, got.stdout)
		}
	}
	if strings.Contains(got.allOutput(), "canary") {
		t.Errorf("a secret is shown:\n%s", got.allOutput())
	}
}

// TestConfigShowHidesAnEndpointsPassword: the endpoint is shown, so it may hold
// no secret.
func TestConfigShowHidesAnEndpointsPassword(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, "resource_type: clusters\nhyperfleet_api:\n  endpoint: http://me:canary@127.0.0.1:1\n")
	got := runCLI(t.Context(), t, nil, "config", "show", "--config", file)
	if got.err == nil || !strings.Contains(got.err.Error(), ":3:13:") || !strings.Contains(got.err.Error(), "HYPERFLEET_API_TOKEN") {
		t.Errorf("got %v, want an error with the place and the way out", got.err)
	}
	if strings.Contains(got.allOutput(), "canary") {
		t.Errorf("the password is shown: %s", got.allOutput())
	}
}

func hasLine(lines []string, key string, want []string) bool {
	for _, line := range lines {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), key+":")
		for _, part := range want {
			ok = ok && strings.Contains(rest, part)
		}
		if ok {
			return true
		}
	}
	return false
}

// vault is a fleet API and a broker that reject all requests and count those that carry the secret.
type vault struct {
	api, broker string
	file        string // of the configuration
	tokenFile   string
	asked       *atomic.Int64
	connected   *atomic.Int64
}

const canary = "canary-9f8e7d"

func newVault(t *testing.T) vault {
	t.Helper()
	v := vault{asked: new(atomic.Int64)}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+canary {
			v.asked.Add(1)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"title":"Unauthorized","status":401}`))
	}))
	t.Cleanup(api.Close)
	v.api = api.URL
	v.broker, v.connected = newTrap(t)
	v.file = writeConfig(t, "resource_type: clusters\npoll_interval: 50ms\nhyperfleet_api: {endpoint: "+api.URL+"}\n")
	v.tokenFile = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(v.tokenFile, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return v
}

// wasUsed reports whether both have been tried several times.
func (v vault) wasUsed() bool { return v.asked.Load() >= 3 && v.connected.Load() >= 2 }

// newEnv puts the vault's addresses into the values of an environment.
func (v vault) newEnv(with map[string]string) map[string]string {
	env := map[string]string{
		"METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
		"LOG_LEVEL": "debug", "HYPERFLEET_API_TOKEN": canary,
	}
	host, port, _ := strings.Cut(v.broker, ":")
	places := strings.NewReplacer("BROKER", v.broker, "HOST", host, "PORT", port, "TOKENFILE", v.tokenFile)
	for key, value := range with {
		env[key] = places.Replace(value)
	}
	return env
}

// TestSecretsAreNotShown runs the sentinel with secrets in every place that
// takes one, against servers that refuse them, and looks for them in all that
// it says.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		env    map[string]string
		runs   bool
	}{
		"RabbitMQ": {
			"a password of its own",
			map[string]string{"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "HOST", "BROKER_PORT": "PORT", "BROKER_USERNAME": "u", "BROKER_PASSWORD": canary},
			true,
		},
		"RabbitMQURL": {
			"a password in the URL",
			map[string]string{"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://u:" + canary + "@BROKER/"},
			true,
		},
		"NATSURL": {
			"a password in the URL",
			map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://u:" + canary + "@BROKER"},
			true,
		},
		"NATSToken": {
			"a token",
			map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://BROKER", "BROKER_TOKEN": canary},
			true,
		},
		"TokenFile": {
			"a token from a file",
			map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://BROKER", "HYPERFLEET_API_TOKEN": "", "HYPERFLEET_API_TOKEN_FILE": "TOKENFILE"},
			true,
		},
		"BrokenURL": {
			"an error that repeats the URL would show it",
			map[string]string{"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://u:" + canary + "@h:port/"},
			false,
		},
		"BrokenNATSURL": {
			"the same",
			map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://u:" + canary + "@h:port"},
			false,
		},
		"BadToken": {
			"a token that no header can hold",
			map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://BROKER", "HYPERFLEET_API_TOKEN": canary + " " + canary},
			false,
		},
		"BadEndpoint": {
			"credentials where none belong",
			map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://BROKER", "HYPERFLEET_API_ENDPOINT": "http://u:" + canary + "@BROKER"},
			false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t)
			env := v.newEnv(tc.env)
			validated := runCLI(t.Context(), t, env, "validate", "--config", v.file)
			ran := v.runSentinel(t, env)
			if (validated.err == nil) != tc.runs || (ran.err == nil) != tc.runs {
				t.Errorf("%s: validate gave %v, the start %v", tc.reason, validated.err, ran.err)
			}
			said := []outcome{validated, ran}
			if tc.runs { // what is refused may hold a secret where none belongs
				said = append(said,
					runCLI(t.Context(), t, env, "config", "show", "--config", v.file),
					runCLI(t.Context(), t, env, "config", "show", "--origins", "--config", v.file))
				if !v.wasUsed() {
					t.Errorf("%s: the token was used %d times and the broker called %d times, want several", tc.reason, v.asked.Load(), v.connected.Load())
				}
			}
			for _, o := range said {
				if strings.Contains(o.allOutput(), canary) {
					t.Errorf("%s: the secret is shown:\n%s", tc.reason, o.allOutput())
				}
			}
		})
	}
}

// runSentinel runs the sentinel until it has used its secrets, or was refused.
func (v vault) runSentinel(t *testing.T, env map[string]string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil && !v.wasUsed() {
			<-tick.C
		}
		cancel()
	})
	ran := runCLI(ctx, t, env, "--config", v.file)
	cancel()
	watch.Wait()
	return ran
}
