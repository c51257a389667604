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
type SentinelConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SentinelConfigSpec   `json:"spec,omitempty"`
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

// SentinelConfigSpec is what is asked of a sentinel. Durations are written as
// Go writes them: 10s, 30m, 1h30m.
type SentinelConfigSpec struct {
	// HyperFleet resource type to watch (clusters, nodepools, etc.)
	// +kubebuilder:validation:Enum=clusters;nodepools
	ResourceType string `json:"resourceType"`

	// Backoff interval for resources NOT in Ready state
	// +kubebuilder:default="10s"
	// +optional
	BackoffNotReady string `json:"backoffNotReady,omitempty"`

	// Backoff interval for resources in Ready state
	// +kubebuilder:default="30m"
	// +optional
	BackoffReady string `json:"backoffReady,omitempty"`

	// Label selector for resource sharding
	// +optional
	ShardSelector *ShardSelector `json:"shardSelector,omitempty"`

	HyperfleetAPI HyperfleetAPI `json:"hyperfleetAPI"`

	Broker Broker `json:"broker"`

	// How often to poll HyperFleet API
	// +kubebuilder:default="5s"
	// +optional
	PollInterval string `json:"pollInterval,omitempty"`

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
	// +optional
	MatchExpressions []LabelExpression `json:"matchExpressions,omitempty"`
}

// LabelExpression is a condition on one label.
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
type HyperfleetAPI struct {
	// HyperFleet API base URL
	URL string `json:"url"`

	// Bound of one request.
	// +kubebuilder:default="10s"
	// +optional
	Timeout string `json:"timeout,omitempty"`

	// Secret of the same namespace with the bearer token; by default its key
	// is "token". It is read again when it changes.
	// +optional
	TokenSecretRef *SecretKeyRef `json:"tokenSecretRef,omitempty"`

	// Which API it is: fleetloop, hyperfleet (the public one), or auto, which
	// finds out.
	// +kubebuilder:validation:Enum=auto;fleetloop;hyperfleet
	// +optional
	Flavour string `json:"flavour,omitempty"`
}

// Broker is where cloud events go.
type Broker struct {
	// Message broker type
	// +kubebuilder:validation:Enum=gcp-pubsub;rabbitmq;nats
	Type BrokerType `json:"type"`

	// Topic/Exchange name for publishing events
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
	// username and password (rabbitmq and nats), or key.json (gcp-pubsub). They
	// win over what the url above holds, and are read again when they change.
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
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// SecretKeyRef names a value in a Secret of the same namespace.
type SecretKeyRef struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// +kubebuilder:default=token
	// +optional
	Key string `json:"key,omitempty"`
}

// Decision is who is due.
type Decision struct {
	// transition-age (phase and lastTransitionTime only), generation-then-age
	// (a changed spec first), or expression.
	// +kubebuilder:validation:Enum=transition-age;generation-then-age;expression
	// +kubebuilder:default=transition-age
	// +optional
	Profile string `json:"profile,omitempty"`

	// Named CEL expressions of the profile expression; each sees those before it.
	// +listType=map
	// +listMapKey=name
	// +optional
	Params []Param `json:"params,omitempty"`

	// CEL expression of the profile expression: a resource is due where it is true.
	// +optional
	Result string `json:"result,omitempty"`
}

// Param is a named CEL expression.
type Param struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
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
	FullSweepInterval string `json:"fullSweepInterval,omitempty"`
}

// Sharding divides what the selector matches among sentinels, by a hash of
// each resource's id.
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
	Name string `json:"name"`
	// +optional
	ResourcesOwned int64 `json:"resourcesOwned,omitempty"`
	// +optional
	EventsPublished int64 `json:"eventsPublished,omitempty"`
	// +optional
	LastRoundTime *metav1.Time `json:"lastRoundTime,omitempty"`
}
