package allinone

import (
	"fmt"
	"os"

	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
)

// adapterEnvFile is the file name of the variables for adapters in the data directory.
const adapterEnvFile = "adapter.env"

// writeAdapterEnv writes a file for a shell to source, with the variables that connect an adapter to this
// process. natsURL is the embedded broker, and env the environment of this process.
//
// The guide does not set these variables, because they change other commands of its terminal: with
// BROKER_TYPE, the next "fleetloop up" would look for an external broker, and HYPERFLEET_API_ENDPOINT has
// priority over the configuration file of a sentinel. The port is also known only when the broker runs.
func writeAdapterEnv(file, natsURL, apiURL string, env func(string) (string, bool)) error {
	variables := []variable{
		{"BROKER_TYPE", string(sentinelapp.NATS)},
		{"BROKER_URL", natsURL},
		{"HYPERFLEET_API_ENDPOINT", apiURL},
		// Any free ports, because this process and other adapters use the default ones.
		{"HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0"},
		{"METRICS_BIND_ADDRESS", "127.0.0.1:0"},
	}
	for _, name := range []string{"BROKER_TOPIC", "BROKER_STREAM", "BROKER_ROUTING_KEY"} {
		if value, _ := env(name); value != "" {
			variables = append(variables, variable{name, value})
		}
	}
	text := "# Variables of an adapter for this fleetloop up. Source this file in the terminal of the adapter.\n" + formatExports(variables)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write variables for adapters: %w", err)
	}
	return nil
}
