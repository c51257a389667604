package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SentinelConfig says what one sentinel watches, when a resource is due, and
// where its cloud events go.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=sentinelconfigs,singular=sentinelconfig,shortName=sc,scope=Namespaced
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resourceType`
// +kubebuilder:printcolumn:name="Selector",type=string,JSONPath=`.status.selector`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Watched",type=integer,JSONPath=`.status.resourcesWatched`
// +kubebuilder:printcolumn:name="Published",type=integer,JSONPath=`.status.eventsPublished`
// +kubebuilder:printcolumn:name="Last Round",type=date,JSONPath=`.status.lastRoundTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Broker",type=string,priority=1,JSONPath=`.spec.broker.type`
// +kubebuilder:printcolumn:name="Topic",type=string,priority=1,JSONPath=`.spec.broker.topic`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type SentinelConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is asked of the sentinel. Durations are written as Go writes them:
	// 10s, 30m, 1h30m.
	// +required
	Spec SentinelConfigSpec `json:"spec"`

	// How the sentinel fares.
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

// A Duration is written as Go writes them: 10s, 30m, 1h30m.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h))*$') && duration(self) > duration('0s')",message="must be a duration of more than nothing, such as 10s, 30m or 1h30m"
type Duration string

// SentinelConfigSpec is what is asked of a sentinel. Durations are written as
// Go writes them: 10s, 30m, 1h30m.
//
// +kubebuilder:validation:XValidation:rule="!has(self.decision) || !has(self.decision.profile) || self.decision.profile != 'expression' || !has(self.source) || !has(self.source.mode) || self.source.mode in ['auto', 'sweep']",message="the profile expression has to look at every resource in every round; leave source.mode at auto or sweep",fieldPath=".source.mode"
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

	// Where the resources are.
	HyperfleetAPI HyperfleetAPI `json:"hyperfleetAPI"`

	// Where cloud events go.
	Broker Broker `json:"broker"`

	// How often to poll HyperFleet API
	// +kubebuilder:default="5s"
	// +optional
	PollInterval Duration `json:"pollInterval,omitempty"`

	// Data of the cloud events: paths, Go templates or CEL expressions by key,
	// nested at will. Without it the data are resourceType, resourceId and reason.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	// +optional
	MessageData *apiextensionsv1.JSON `json:"messageData,omitempty"`

	// Rules that say who is due.
	// +optional
	Decision *Decision `json:"decision,omitempty"`

	// How changes are learned of.
	// +optional
	Source *Source `json:"source,omitempty"`

	// Division among sentinels beyond labels.
	// +optional
	Sharding *Sharding `json:"sharding,omitempty"`
}

// ShardSelector is a Kubernetes label selector: what is asked for must all be
// met. One that asks for nothing selects every resource.
type ShardSelector struct {
	// Labels that a resource must have, with these values.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// Conditions on single labels.
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	MatchExpressions []LabelExpression `json:"matchExpressions,omitempty"`
}

// LabelExpression is a condition on one label.
//
// +kubebuilder:validation:XValidation:rule="has(self.key) && size(self.key) > 0",message="key is required: the name of a label"
// +kubebuilder:validation:XValidation:rule="has(self.operator) && self.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist']",message="operator must be In, NotIn, Exists or DoesNotExist"
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || !(self.operator in ['In', 'NotIn']) || has(self.values) && size(self.values) > 0",message="the operators In and NotIn need values"
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || !(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",message="the operators Exists and DoesNotExist take no values"
type LabelExpression struct {
	// Name of the label.
	// +optional
	Key string `json:"key,omitempty"`

	// In, NotIn, Exists or DoesNotExist. NotIn also selects what does not
	// have the label at all.
	// +optional
	Operator string `json:"operator,omitempty"`

	// Values of In and NotIn, one or more; the others take none.
	// +optional
	Values []string `json:"values,omitempty"`
}

// HyperfleetAPI is where the resources are.
//
// The rules stand here and not at url, because the API server shows the value
// that a rule refuses, and a url may hold a password.
//
// +kubebuilder:validation:XValidation:rule="isURL(self.url) && url(self.url).getScheme() in ['http', 'https'] && size(url(self.url).getHostname()) > 0",message="must be a URL such as http://hyperfleet-api:8080",fieldPath=".url"
// +kubebuilder:validation:XValidation:rule="!self.url.matches('^[a-z]+://[^/?#]*@')",message="must hold no user name or password: put a token into a Secret and name it in tokenSecretRef",fieldPath=".url"
type HyperfleetAPI struct {
	// HyperFleet API base URL
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Bound of one request.
	// +kubebuilder:default="10s"
	// +optional
	Timeout Duration `json:"timeout,omitempty"`

	// Secret of the same namespace with the bearer token; by default its key
	// is "token". It is read again when it changes.
	// +optional
	TokenSecretRef *SecretKeyRef `json:"tokenSecretRef,omitempty"`

	// Secret of the same namespace with headers for every request, for
	// gateways that ask for more than a token: its keys are their names. It is
	// read again when it changes.
	// +optional
	HeadersSecretRef *SecretRef `json:"headersSecretRef,omitempty"`

	// Which API it is: fleetloop, hyperfleet (the public one), or auto, which
	// finds out.
	// +kubebuilder:validation:Enum=auto;fleetloop;hyperfleet
	// +optional
	Flavour string `json:"flavour,omitempty"`
}

// Broker is where cloud events go.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'gcp-pubsub' || has(self.projectID) && size(self.projectID) > 0",message="gcp-pubsub needs the ID of a project",fieldPath=".projectID",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!(self.type in ['rabbitmq', 'nats']) || has(self.credentialsSecretRef) || has(self.url) && size(self.url) > 0",message="rabbitmq and nats need an address, here or in the Secret that credentialsSecretRef names",fieldPath=".url",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="self.type != 'rabbitmq' || !has(self.url) || size(self.url) == 0 || self.url.startsWith('amqp://') || self.url.startsWith('amqps://')",message="must be the address of RabbitMQ, such as amqp://user:password@rabbitmq:5672/",fieldPath=".url"
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

	// Secret of the same namespace with the broker's credentials: url, or
	// username and password beside the url here (rabbitmq and nats), or token
	// (nats), or key.json (gcp-pubsub). They win over what the url here holds,
	// and are read again when they change.
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

// SecretRef names a Secret of the same namespace.
type SecretRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// SecretKeyRef names a value in a Secret of the same namespace.
type SecretKeyRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Key of the value in the Secret.
	// +kubebuilder:default=token
	// +optional
	Key string `json:"key,omitempty"`
}

// Decision is who is due.
//
// +kubebuilder:validation:XValidation:rule="!has(self.profile) || self.profile != 'expression' || has(self.result) && size(self.result) > 0",message="the profile expression needs one",fieldPath=".result",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="has(self.profile) && self.profile == 'expression' || (!has(self.result) || size(self.result) == 0) && (!has(self.params) || size(self.params) == 0)",message="params and result are for the profile expression only"
type Decision struct {
	// transition-age (phase and lastTransitionTime only), generation-then-age
	// (a changed spec first), or expression.
	// +kubebuilder:validation:Enum=transition-age;generation-then-age;expression
	// +kubebuilder:default=transition-age
	// +optional
	Profile string `json:"profile,omitempty"`

	// Named CEL expressions of the profile expression; each sees those before it.
	// +listType=atomic
	// +optional
	Params []Param `json:"params,omitempty"`

	// CEL expression of the profile expression: a resource is due where it is true.
	// +optional
	Result string `json:"result,omitempty"`
}

// Param is a named CEL expression.
type Param struct {
	// Name by which later expressions call the value.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// CEL expression over resource, now, condition(type) and earlier params.
	// +kubebuilder:validation:MinLength=1
	Expr string `json:"expr"`
}

// Source is how changes are learned of.
type Source struct {
	// sweep (list all, every round), etag, cursor, watch, or auto, the best that the API offers.
	// +kubebuilder:validation:Enum=auto;sweep;etag;cursor;watch
	// +optional
	Mode string `json:"mode,omitempty"`

	// How often everything is listed nevertheless in the modes etag, cursor and watch.
	// +optional
	FullSweepInterval Duration `json:"fullSweepInterval,omitempty"`
}

// Sharding divides what the selector matches among sentinels, by a hash of
// each resource's id.
//
// +kubebuilder:validation:XValidation:rule="has(self.mode) && self.mode == 'auto' || has(self.count) && has(self.index)",message="the mode static needs count and index"
// +kubebuilder:validation:XValidation:rule="!has(self.count) || !has(self.index) || self.index < self.count",message="must be less than count: the parts are counted from 0",fieldPath=".index"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'auto' || !has(self.count) && !has(self.index)",message="the mode auto takes neither count nor index: the replicas find each other"
type Sharding struct {
	// static: count and index say which part is this sentinel's. auto: the
	// replicas that run this configuration find each other and divide it
	// among themselves.
	// +kubebuilder:validation:Enum=static;auto
	// +kubebuilder:default=static
	// +optional
	Mode ShardingMode `json:"mode,omitempty"`

	// How many parts there are.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	Count *int32 `json:"count,omitempty"`

	// Which of the parts is this one, from 0.
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
	// ConditionConfigValid is false while the spec makes no sense; the last
	// good one stays in force.
	ConditionConfigValid = "ConfigValid"
	// ConditionAPIReachable is about the last requests to the fleet API.
	ConditionAPIReachable = "APIReachable"
	// ConditionBrokerReachable is about the connection to the broker.
	ConditionBrokerReachable = "BrokerReachable"
)

// SentinelConfigStatus is how the sentinel fares.
type SentinelConfigStatus struct {
	// The generation of the spec that is in force. It lags behind the
	// object's while a change is invalid or not in force yet.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready, ConfigValid, APIReachable, BrokerReachable.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// When the last complete round ended.
	// +optional
	LastRoundTime *metav1.Time `json:"lastRoundTime,omitempty"`

	// What selects the resources, as the text of a label selector; empty
	// where all of them are watched.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Resources that match, as of the last complete round.
	// +optional
	ResourcesWatched int64 `json:"resourcesWatched,omitempty"`

	// Events that the broker has confirmed since the process began.
	// +optional
	EventsPublished int64 `json:"eventsPublished,omitempty"`

	// The sentinels that divide the resources among themselves, where sharding is auto.
	// +listType=map
	// +listMapKey=name
	// +optional
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
}

// ReplicaStatus is how one of several sentinels fares.
type ReplicaStatus struct {
	// Name of the replica's pod.
	Name string `json:"name"`

	// Resources that match and are its own.
	// +optional
	ResourcesOwned int64 `json:"resourcesOwned,omitempty"`

	// Events of its own that the broker has confirmed.
	// +optional
	EventsPublished int64 `json:"eventsPublished,omitempty"`

	// When its last complete round ended.
	// +optional
	LastRoundTime *metav1.Time `json:"lastRoundTime,omitempty"`
}
