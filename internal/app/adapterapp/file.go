package adapterapp

import (
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// File is the content of an adapter's file.
type File struct {
	APIVersion string `key:"apiVersion" validate:"required,oneof=adapter.fleetloop.io/v1alpha1" doc:"Version of the format."`
	Kind       string `key:"kind" validate:"required,oneof=Adapter" doc:"Always Adapter."`

	Name  string   `key:"name" validate:"required" doc:"Name of the adapter in its reports: a lower-case DNS label."`
	Kinds []string `key:"kinds" validate:"dive,oneof=clusters nodepools manifests workloads" doc:"Kinds of resources (default: all)."`

	Concurrency   int           `key:"concurrency" env:"ADAPTER_CONCURRENCY" default:"8" validate:"gt=0" doc:"Maximum number of concurrent evaluations."`
	MaxAttempts   int           `key:"max_attempts" env:"ADAPTER_MAX_ATTEMPTS" default:"5" validate:"gt=0" doc:"Failed evaluations of an event before it is dead-lettered."`
	RetryDelay    time.Duration `key:"retry_delay" env:"ADAPTER_RETRY_DELAY" default:"1s" validate:"gt=0" doc:"Delay before the first retry. It doubles with each failure."`
	MaxRetryDelay time.Duration `key:"max_retry_delay" env:"ADAPTER_MAX_RETRY_DELAY" default:"1m" validate:"gt=0" doc:"Maximum delay before a retry."`
	Timeout       time.Duration `key:"timeout" env:"ADAPTER_TIMEOUT" default:"5m" validate:"gt=0" doc:"Maximum duration of one evaluation."`

	Broker BrokerSettings `key:"broker"`
	Fleet  FleetSettings  `key:"fleet_api"`

	Secrets map[string]Secret `key:"secrets" validate:"dive" doc:"Secrets by name, as expressions use them: secrets.NAME."`

	Condition string `key:"condition" doc:"Expression that must be true before the action runs (default: true). Deletion does not wait for it."`
	Waiting   string `key:"waiting_message" doc:"Message of the report while the condition is false."`

	Action Action   `key:"action"`
	Report Report   `key:"report"`
	Delete Deletion `key:"delete"`
}

// BrokerSettings selects the broker. All its other settings come from the environment.
type BrokerSettings struct {
	Type         string          `key:"type" env:"BROKER_TYPE" doc:"Broker: rabbitmq, pubsub or nats. The other variables BROKER_* apply, too."`
	URL          settings.Secret `key:"url" env:"BROKER_URL" secret:"true" doc:"URL of RabbitMQ or NATS."`
	Topic        string          `key:"topic" env:"BROKER_TOPIC" doc:"Exchange of RabbitMQ, topic of Pub/Sub, or stream of NATS."`
	ProjectID    string          `key:"project_id" env:"BROKER_PROJECT_ID" doc:"Google Cloud project of Pub/Sub."`
	Subscription string          `key:"subscription" env:"BROKER_SUBSCRIPTION_ID" doc:"Name of the queue (default: adapter-NAME). Processes with the same queue share the events."`
}

// FleetSettings selects the fleet API.
type FleetSettings struct {
	Endpoint  string `key:"endpoint" env:"HYPERFLEET_API_ENDPOINT" doc:"URL of the fleet API."`
	TokenFile string `key:"token_file" env:"HYPERFLEET_API_TOKEN_FILE" doc:"File with the bearer token. The token itself comes from HYPERFLEET_API_TOKEN."`
	CAFile    string `key:"ca_file" env:"HYPERFLEET_API_CA_FILE" doc:"File with the certificate authorities (PEM)."`
}

// A Secret is a text outside the file. Exactly one field is set.
type Secret struct {
	Env  string `key:"env" doc:"Variable with the secret."`
	File string `key:"file" doc:"File with the secret. It is read at each use."`
}

// Action is the work. Exactly one field is set.
type Action struct {
	HTTP    HTTP    `key:"http"`
	Command Command `key:"command"`
	Apply   Apply   `key:"apply"`
	Remove  Remove  `key:"remove"`
	Job     Job     `key:"job"`
}

// HTTP sends a request. Redirects are not followed.
type HTTP struct {
	Method    string            `key:"method" doc:"Method (default: POST)."`
	URL       string            `key:"url" doc:"URL. Each {EXPRESSION} after the host becomes one escaped path segment, or parameter of the query."`
	Headers   map[string]string `key:"headers" doc:"Headers: texts or expressions."`
	Body      settings.Tree     `key:"body" doc:"Body, which is sent as JSON. Texts in it may be expressions."`
	Timeout   time.Duration     `key:"timeout" validate:"min=0" doc:"Timeout (default: 30s)."`
	CAFile    string            `key:"ca_file" doc:"File with the certificate authorities of the server (PEM; default: those of the system)."`
	Success   []string          `key:"success" doc:"Successful statuses, such as 204 or 2xx (default: 2xx)."`
	Permanent []string          `key:"permanent" doc:"Failed statuses that are not retried (default: 3xx and 4xx, except 401, 403, 408, 409, 425 and 429)."`
}

// Command runs a program.
type Command struct {
	Args               []string          `key:"args" doc:"Program and its arguments: texts or expressions, passed without a shell."`
	Env                map[string]string `key:"env" doc:"Environment: texts or expressions. Only PATH, HOME and TMPDIR are added."`
	Stdin              settings.Tree     `key:"stdin" doc:"Standard input, as JSON. Texts in it may be expressions."`
	Timeout            time.Duration     `key:"timeout" validate:"min=0" doc:"Timeout (default: 1m). It ends all processes of the command."`
	PermanentExitCodes []int             `key:"permanent_exit_codes" doc:"Exit codes of failures that are not retried."`
}

// Apply applies one Kubernetes object by server-side apply, and takes over conflicting fields.
type Apply struct {
	Manifest     settings.Tree `key:"manifest" doc:"Kubernetes object. Texts in it may be expressions."`
	FieldManager string        `key:"field_manager" doc:"Field manager (default: the name of the adapter)."`
}

// Remove deletes one Kubernetes object that Apply created.
type Remove struct {
	Manifest     settings.Tree `key:"manifest" doc:"apiVersion, kind, metadata.name and metadata.namespace of the object. Texts may be expressions."`
	FieldManager string        `key:"field_manager" doc:"Field manager that applied the object (default: the name of the adapter). Other objects are not deleted."`
}

// Job runs a Kubernetes Job, once per generation. A failed Job is not repeated, unless it is deleted.
// Before a new one is created, those of earlier generations are deleted, with their Pods.
type Job struct {
	Manifest settings.Tree `key:"manifest" doc:"metadata.namespace and spec of the Job. Texts in it may be expressions. The Jobs have generated names and labels."`
	Wait     time.Duration `key:"wait" validate:"min=0" doc:"How long one evaluation waits for the end of the Job (default: 1m). Then the report says that it runs, and the next event waits again."`
}

// Report is the report after a successful action.
type Report struct {
	Available  string        `key:"available" doc:"Expression: whether the work is complete (default: true; for a Job: result.state == 'Succeeded')."`
	Message    string        `key:"message" doc:"Message: a text or an expression."`
	Conditions []Condition   `key:"conditions" validate:"dive" doc:"Further conditions."`
	Data       settings.Tree `key:"data" doc:"Data of the report: a mapping. Texts in it may be expressions."`
}

// Condition is a further condition of a report.
type Condition struct {
	Type    string `key:"type" validate:"required" doc:"Type of the condition."`
	Status  string `key:"status" validate:"required" doc:"Expression: whether the condition is True."`
	Reason  string `key:"reason" doc:"Reason: a text or an expression (default: the type)."`
	Message string `key:"message" doc:"Message: a text or an expression."`
}

// Deletion is what happens when the deletion of a resource was requested. Either Nothing is set, or
// one action.
type Deletion struct {
	Action

	Nothing   bool   `key:"nothing" doc:"There is nothing to clean up."`
	Finalized string `key:"finalized" doc:"Expression: whether the cleanup is complete (default: true; for remove: !result.exists; for a Job: result.state == 'Succeeded')."`
	Message   string `key:"message" doc:"Message: a text or an expression."`
}

// newKitConfig returns the configuration of the kit for adapters.
func (f File) newKitConfig() adapter.Config {
	return adapter.Config{
		Name: f.Name, Collections: f.Kinds, Subscription: f.Broker.Subscription,
		Concurrency: f.Concurrency, MaxAttempts: f.MaxAttempts,
		RetryDelay: f.RetryDelay, MaxRetryDelay: f.MaxRetryDelay, Timeout: f.Timeout,
		Broker: adapter.BrokerConfig{
			Type: f.Broker.Type, URL: f.Broker.URL.Reveal(), Topic: f.Broker.Topic, ProjectID: f.Broker.ProjectID,
		},
		Fleet: adapter.FleetConfig{Endpoint: f.Fleet.Endpoint, TokenFile: f.Fleet.TokenFile, CAFile: f.Fleet.CAFile},
	}
}
