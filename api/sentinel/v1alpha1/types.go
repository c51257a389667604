package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SentinelConfig configures one sentinel: a process that watches clusters or node pools in
// the HyperFleet API. The sentinel publishes a CloudEvent when a resource needs work.
// Controllers that are called adapters receive the CloudEvents and do the work.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=sentinelconfigs,singular=sentinelconfig,shortName=sc,scope=Namespaced
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resourceType`
// +kubebuilder:printcolumn:name="Selector",type=string,JSONPath=`.status.selector`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Watched",type=integer,JSONPath=`.status.resourcesWatched`
// +kubebuilder:printcolumn:name="Published",type=integer,JSONPath=`.status.eventsPublished`
// +kubebuilder:printcolumn:name="Last Poll",type=date,JSONPath=`.status.lastPollTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Broker",type=string,priority=1,JSONPath=`.spec.broker.type`
// +kubebuilder:printcolumn:name="Topic",type=string,priority=1,JSONPath=`.spec.broker.topic`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type SentinelConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired configuration of the sentinel. Durations use the Go format: 10s, 30m, 1h30m.
	// +required
	Spec SentinelConfigSpec `json:"spec"`

	// Observed state of the sentinel. Only the sentinel writes the status.
	// +optional
	Status SentinelConfigStatus `json:"status,omitempty"`
}

// SentinelConfigList is a list of SentinelConfigs.
//
// +kubebuilder:object:root=true
type SentinelConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SentinelConfig `json:"items"`
}

// Duration in the Go format: 10s, 30m, 1h30m.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h))*$') && duration(self) > duration('0s')",message="must be a positive duration such as 10s, 30m or 1h30m"
type Duration string

// SentinelConfigSpec is the desired configuration of a sentinel. Durations use
// the Go format: 10s, 30m, 1h30m.
//
// +kubebuilder:validation:XValidation:rule="!has(self.decision) || !has(self.decision.profile) || self.decision.profile != 'expression' || !has(self.source) || !has(self.source.mode) || self.source.mode in ['auto', 'sweep']",message="the profile expression must evaluate every resource in every poll: source.mode must be auto or sweep",fieldPath=".source.mode"
type SentinelConfigSpec struct {
	// HyperFleet resource type to watch (clusters, nodepools, etc.)
	// +kubebuilder:validation:Enum=clusters;nodepools
	ResourceType string `json:"resourceType"`

	// Backoff interval for resources NOT in Ready state
	// +kubebuilder:default="10s"
	// +optional
	BackoffNotReady Duration `json:"backoffNotReady,omitempty"`

	// Backoff interval for resources in Ready state
	// +kubebuilder:default="30m"
	// +optional
	BackoffReady Duration `json:"backoffReady,omitempty"`

	// Label selector for resource sharding
	// +optional
	ShardSelector *ShardSelector `json:"shardSelector,omitempty"`

	// Connection to the HyperFleet API, from which the sentinel reads the resources.
	HyperfleetAPI HyperfleetAPI `json:"hyperfleetAPI"`

	// Message broker to which the sentinel publishes CloudEvents: its type, address, topic
	// and credentials.
	Broker Broker `json:"broker"`

	// How often to poll HyperFleet API
	// +kubebuilder:default="5s"
	// +optional
	PollInterval Duration `json:"pollInterval,omitempty"`

	// Content of each CloudEvent (its data), as keys and values; maps can be nested. Each
	// value is a fixed text, a field of the resource such as .metadata.labels.region, a Go
	// template, or a CEL expression with the prefix "cel:". By default the keys are
	// resourceType, resourceId and reason.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	// +optional
	MessageData *apiextensionsv1.JSON `json:"messageData,omitempty"`

	// Rules that decide when the sentinel publishes a CloudEvent for a resource. By default
	// it publishes one when the last phase change is older than backoffReady (if the phase
	// is Ready) or backoffNotReady (for every other phase).
	// +optional
	Decision *Decision `json:"decision,omitempty"`

	// How the sentinel reads resources from the API. By default it uses the best mode that
	// the API supports, and lists all resources at least every 10 minutes.
	// +optional
	Source *Source `json:"source,omitempty"`

	// How several sentinels divide the selected resources among themselves. A hash of the
	// resource ID decides which sentinel watches a resource. By default this sentinel
	// watches all selected resources.
	// +optional
	Sharding *Sharding `json:"sharding,omitempty"`
}

// ShardSelector is a Kubernetes label selector. A resource must match all
// requirements. An empty selector selects every resource.
type ShardSelector struct {
	// Labels and values that a resource must have so that this sentinel watches it. All must
	// match.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// Requirements that the labels of a resource must meet so that this sentinel watches the
	// resource. All must be met.
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	MatchExpressions []LabelExpression `json:"matchExpressions,omitempty"`
}

// LabelExpression is a requirement on one label.
//
// +kubebuilder:validation:XValidation:rule="has(self.key) && size(self.key) > 0",message="key is required"
// +kubebuilder:validation:XValidation:rule="has(self.operator) && self.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist']",message="operator must be In, NotIn, Exists or DoesNotExist"
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || !(self.operator in ['In', 'NotIn']) || has(self.values) && size(self.values) > 0",message="values are required for the operators In and NotIn"
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || !(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",message="values must be empty for the operators Exists and DoesNotExist"
type LabelExpression struct {
	// Name of the label.
	// +optional
	Key string `json:"key,omitempty"`

	// How to compare the label with values: In, NotIn, Exists or DoesNotExist. NotIn also
	// selects resources without the label.
	// +optional
	Operator string `json:"operator,omitempty"`

	// Values to compare the label with. In and NotIn require at least one value. Exists
	// and DoesNotExist allow none.
	// +optional
	Values []string `json:"values,omitempty"`
}

// HyperfleetAPI is the connection to the HyperFleet API.
//
// The rules stand here and not at url, because the API server shows the value
// that a rule refuses, and a url may hold a password.
//
// +kubebuilder:validation:XValidation:rule="isURL(self.url) && url(self.url).getScheme() in ['http', 'https'] && size(url(self.url).getHostname()) > 0",message="must be a URL such as http://hyperfleet-api:8080",fieldPath=".url"
// +kubebuilder:validation:XValidation:rule="!self.url.matches('^[a-z]+://[^/?#]*@')",message="must not contain a user name or password: put a token in a Secret and reference it in tokenSecretRef",fieldPath=".url"
type HyperfleetAPI struct {
	// HyperFleet API base URL
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Maximum duration of one request to the API. The request fails after this time.
	// Defaults to 10s.
	// +kubebuilder:default="10s"
	// +optional
	Timeout Duration `json:"timeout,omitempty"`

	// Secret in the same namespace that contains the bearer token for the API. The
	// sentinel reads the Secret again when it changes. By default the sentinel sends no
	// token.
	// +optional
	TokenSecretRef *SecretKeyRef `json:"tokenSecretRef,omitempty"`

	// Secret in the same namespace with HTTP headers that the sentinel adds to every
	// request to the API, for example for an API gateway. Each key of the Secret is a
	// header name, and its value is the header value. The sentinel reads the Secret again
	// when it changes.
	// +optional
	HeadersSecretRef *SecretRef `json:"headersSecretRef,omitempty"`

	// Variant of the API: fleetloop (the API of Fleetloop), hyperfleet (the public
	// HyperFleet API) or auto (the sentinel detects the variant from the responses).
	// Defaults to auto.
	// +kubebuilder:validation:Enum=auto;fleetloop;hyperfleet
	// +optional
	Flavour string `json:"flavour,omitempty"`
}

// Broker is the message broker to which the sentinel publishes CloudEvents.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'gcp-pubsub' || has(self.projectID) && size(self.projectID) > 0",message="is required for type gcp-pubsub",fieldPath=".projectID",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!(self.type in ['rabbitmq', 'nats']) || has(self.credentialsSecretRef) || has(self.url) && size(self.url) > 0",message="is required for types rabbitmq and nats, here or in the Secret of credentialsSecretRef",fieldPath=".url",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="self.type != 'rabbitmq' || !has(self.url) || size(self.url) == 0 || self.url.startsWith('amqp://') || self.url.startsWith('amqps://')",message="must be a RabbitMQ URL such as amqp://user:password@rabbitmq:5672/",fieldPath=".url"
type Broker struct {
	// Message broker type
	// +kubebuilder:validation:Enum=gcp-pubsub;rabbitmq;nats
	Type BrokerType `json:"type"`

	// Topic/Exchange name for publishing events
	// +kubebuilder:validation:MinLength=1
	Topic string `json:"topic"`

	// GCP Project ID (required for gcp-pubsub)
	// +optional
	ProjectID string `json:"projectID,omitempty"`

	// Broker URL (required for rabbitmq)
	// +optional
	URL string `json:"url,omitempty"`

	// Exchange name (optional for rabbitmq, defaults to topic)
	// +optional
	Exchange string `json:"exchange,omitempty"`

	// Secret in the same namespace with the credentials of the broker. Keys by broker
	// type: gcp-pubsub (key.json), rabbitmq (url, or username and password), nats (url,
	// token, or username and password). They override spec.broker.url and the credentials
	// in it. The sentinel reads the Secret again when it changes.
	// +optional
	CredentialsSecretRef *SecretRef `json:"credentialsSecretRef,omitempty"`
}

// A BrokerType is a kind of broker.
type BrokerType string

// The types of broker.
const (
	BrokerPubSub   BrokerType = "gcp-pubsub"
	BrokerRabbitMQ BrokerType = "rabbitmq"
	BrokerNATS     BrokerType = "nats"
)

// BrokerTypes returns all types of broker. A broker of a type needs a URL unless the translation of SentinelConfigs has another rule for it.
func BrokerTypes() []BrokerType { return []BrokerType{BrokerPubSub, BrokerRabbitMQ, BrokerNATS} }

// SecretRef references a Secret in the same namespace.
type SecretRef struct {
	// Name of the Secret, in the namespace of the SentinelConfig.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// SecretKeyRef references a key of a Secret in the same namespace.
type SecretKeyRef struct {
	// Name of the Secret, in the namespace of the SentinelConfig.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Key in the Secret whose value is the bearer token. Defaults to token.
	// +kubebuilder:default=token
	// +optional
	Key string `json:"key,omitempty"`
}

// Decision holds the rules that decide when the sentinel publishes an event for a
// resource.
//
// +kubebuilder:validation:XValidation:rule="!has(self.profile) || self.profile != 'expression' || has(self.result) && size(self.result) > 0",message="is required for the profile expression",fieldPath=".result",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="has(self.profile) && self.profile == 'expression' || (!has(self.result) || size(self.result) == 0) && (!has(self.params) || size(self.params) == 0)",message="params and result require the profile expression"
type Decision struct {
	// Rule that decides when to publish an event for a resource. The limit is backoffReady
	// if the resource is Ready, otherwise backoffNotReady. transition-age (the default):
	// when the last phase change is older than the limit. generation-then-age: immediately
	// after a new generation, otherwise when the last status report is older than the
	// limit. expression: when the CEL expression in spec.decision.result is true.
	// +kubebuilder:validation:Enum=transition-age;generation-then-age;expression
	// +kubebuilder:default=transition-age
	// +optional
	Profile string `json:"profile,omitempty"`

	// Named CEL expressions, allowed only if profile is "expression". The expression in
	// spec.decision.result can use their values by name. Each expression can also use the
	// values of those above it in this list.
	// +listType=atomic
	// +optional
	Params []Param `json:"params,omitempty"`

	// CEL expression, required if profile is "expression" and not allowed otherwise. The
	// sentinel publishes an event for a resource if the expression is true. It can use
	// resource, now (the current time), condition("Ready") (a status condition of the
	// resource) and the names in params.
	// +optional
	Result string `json:"result,omitempty"`
}

// Param is a named CEL expression.
type Param struct {
	// Name by which other CEL expressions can use the value: the one in
	// spec.decision.result and those below this one in the list.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// CEL expression that computes the value. It can use resource, now (the current time),
	// condition("Ready") (a status condition of the resource) and the names of earlier
	// params.
	// +kubebuilder:validation:MinLength=1
	Expr string `json:"expr"`
}

// Source is how the sentinel reads resources from the API.
type Source struct {
	// How the sentinel learns about changes: sweep (lists all resources in every poll),
	// etag (the same, but the API does not send unchanged pages), cursor (lists only
	// changed resources), watch (receives changes immediately) or auto (the best mode that
	// the API supports). If the API does not support the mode, the sentinel uses the next
	// best. Defaults to auto.
	// +kubebuilder:validation:Enum=auto;sweep;etag;cursor;watch
	// +optional
	Mode string `json:"mode,omitempty"`

	// How often the sentinel lists all resources to find changes that it missed. Has no
	// effect in the mode sweep (see spec.source.mode), which lists all resources in every
	// poll. Defaults to 10m.
	// +optional
	FullSweepInterval Duration `json:"fullSweepInterval,omitempty"`
}

// Sharding divides the selected resources among sentinels, by a hash of the
// resource id.
//
// +kubebuilder:validation:XValidation:rule="has(self.mode) && self.mode == 'auto' || has(self.count) && has(self.index)",message="count and index are required for the mode static"
// +kubebuilder:validation:XValidation:rule="!has(self.count) || !has(self.index) || self.index < self.count",message="must be less than count: the first index is 0",fieldPath=".index"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'auto' || !has(self.count) && !has(self.index)",message="count and index must not be set for the mode auto"
type Sharding struct {
	// How sentinels divide the resources. static (the default): there are
	// spec.sharding.count shards, numbered from 0, and this sentinel watches only the shard
	// with the number spec.sharding.index. auto: the replicas that run this SentinelConfig
	// coordinate through Leases and divide the resources among themselves.
	// +kubebuilder:validation:Enum=static;auto
	// +kubebuilder:default=static
	// +optional
	Mode ShardingMode `json:"mode,omitempty"`

	// Number of shards into which the resources are divided, from 1 to 1024. Required if
	// mode is static, not allowed if it is auto.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	Count *int32 `json:"count,omitempty"`

	// Number of the shard that this sentinel watches, from 0 to count minus 1. Required if
	// mode is static, not allowed if it is auto.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Index *int32 `json:"index,omitempty"`
}

// A ShardingMode is how the parts are given out.
type ShardingMode string

// The modes of sharding.
const (
	ShardingStatic ShardingMode = "static"
	ShardingAuto   ShardingMode = "auto"
)

// Types of conditions.
const (
	// ConditionReady is true while the sentinel watches and publishes under
	// the observed generation.
	ConditionReady = "Ready"
	// ConditionConfigValid is false while the spec is invalid; the last valid
	// one stays active.
	ConditionConfigValid = "ConfigValid"
	// ConditionAPIReachable is about the last requests to the fleet API.
	ConditionAPIReachable = "APIReachable"
	// ConditionBrokerReachable is about the connection to the broker.
	ConditionBrokerReachable = "BrokerReachable"
)

// SentinelConfigStatus is the observed state of the sentinel.
type SentinelConfigStatus struct {
	// Value of metadata.generation of the spec that the sentinel uses. It is lower than
	// metadata.generation while the latest spec is invalid or the sentinel has not applied
	// it yet. Unset while no spec is in use.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the sentinel: Ready (the sentinel watches resources and publishes
	// events), ConfigValid (the sentinel uses the latest spec), APIReachable (requests to
	// the API succeed) and BrokerReachable (the sentinel is connected to the broker).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Time of the last completed poll. In a poll the sentinel reads resources and
	// publishes events.
	// +optional
	LastPollTime *metav1.Time `json:"lastPollTime,omitempty"`

	// Label selector that the sentinel uses, from spec.shardSelector. Empty if the
	// sentinel selects all resources.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Number of resources that the sentinel watches, as of the last completed poll. These
	// are the resources that match the label selector and, if spec.sharding.mode is
	// static, belong to the shard of the sentinel.
	// +optional
	ResourcesWatched int64 `json:"resourcesWatched,omitempty"`

	// Number of CloudEvents that the sentinel published and the broker confirmed, since
	// the sentinel process started.
	// +optional
	EventsPublished int64 `json:"eventsPublished,omitempty"`

	// Sentinel replicas that divide the resources among themselves. Set only if
	// spec.sharding.mode is auto.
	// +listType=map
	// +listMapKey=name
	// +optional
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
}

// ReplicaStatus is the observed state of one sentinel replica.
type ReplicaStatus struct {
	// Name of the pod of the replica.
	Name string `json:"name"`

	// Number of resources that this replica watches.
	// +optional
	ResourcesOwned int64 `json:"resourcesOwned,omitempty"`

	// Number of CloudEvents that this replica published and the broker confirmed, since
	// the replica started.
	// +optional
	EventsPublished int64 `json:"eventsPublished,omitempty"`

	// Time of the last completed poll of this replica.
	// +optional
	LastPollTime *metav1.Time `json:"lastPollTime,omitempty"`
}
