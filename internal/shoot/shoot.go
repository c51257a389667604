// Package shoot says what a Gardener Shoot is to us: the part of it that we
// write, the part that we read, and what becomes of a request.
//
// A Manifest marshals to the JSON that Gardener's API takes; what we do not set
// is left out, so that its defaults and other writers stay. The configurations
// of providers are opaque: extensions of one name differ in their fields.
package shoot

import (
	"encoding/json"
	"time"
)

// The API that serves Shoots.
const (
	APIVersion = "core.gardener.cloud/v1beta1"
	Kind       = "Shoot"
)

// Labels and annotations of our Shoots.
const (
	// LabelCluster is the id of the cluster that the Shoot is.
	LabelCluster = "fleetloop.io/cluster-id"
	// LabelInstallation is the database whose cluster that is. Shoots of other
	// installations in the same project are none of our business.
	LabelInstallation = "fleetloop.io/installation"
	// AnnotationGeneration is the generation of the sync row that was sent last.
	AnnotationGeneration = "fleetloop.io/generation"
	// AnnotationName is the name that the cluster has in the fleet API.
	AnnotationName = "fleetloop.io/cluster-name"
	// AnnotationConfirmDeletion has to be "true" before Gardener deletes.
	AnnotationConfirmDeletion = "confirmation.gardener.cloud/deletion"
)

// A Manifest is the part of a Shoot that we write.
type Manifest struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata names a Shoot.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec is what the Shoot should be.
type Spec struct {
	CloudProfile           CloudProfile `json:"cloudProfile"`
	CredentialsBindingName string       `json:"credentialsBindingName,omitempty"`
	Region                 string       `json:"region"`
	Kubernetes             Kubernetes   `json:"kubernetes"`
	Networking             *Networking  `json:"networking,omitempty"`
	Provider               Provider     `json:"provider"`
}

// CloudProfile refers to what the provider offers.
type CloudProfile struct {
	Name string `json:"name"`
	Kind string `json:"kind,omitempty"`
}

// Kubernetes is which Kubernetes runs in the Shoot.
type Kubernetes struct {
	Version string `json:"version,omitempty"`
}

// Networking is the network of the Shoot. An empty range is left to Gardener.
type Networking struct {
	Type     string `json:"type,omitempty"`
	Nodes    string `json:"nodes,omitempty"`
	Pods     string `json:"pods,omitempty"`
	Services string `json:"services,omitempty"`
}

// Provider is where the Shoot runs, and on what.
type Provider struct {
	Type                 string          `json:"type"`
	InfrastructureConfig json.RawMessage `json:"infrastructureConfig,omitempty"`
	ControlPlaneConfig   json.RawMessage `json:"controlPlaneConfig,omitempty"`
	Workers              []Worker        `json:"workers,omitempty"`
}

// A Worker is one group of machines: a node pool.
type Worker struct {
	Name    string            `json:"name"`
	Machine Machine           `json:"machine"`
	Minimum int32             `json:"minimum"`
	Maximum int32             `json:"maximum"`
	Volume  *Volume           `json:"volume,omitempty"`
	Zones   []string          `json:"zones,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Taints  []Taint           `json:"taints,omitempty"`
}

// Machine is what a worker's machines are. Without an image Gardener takes the
// newest, and keeps it up to date.
type Machine struct {
	Type  string `json:"type"`
	Image *Image `json:"image,omitempty"`
}

// Image is an operating system.
type Image struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Volume is the disk of a machine.
type Volume struct {
	Type string `json:"type,omitempty"`
	Size string `json:"size"`
}

// Taint keeps Pods away that do not tolerate it.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// Ref names a Shoot that is there, or was.
type Ref struct {
	Name string
	// UID is that of the Shoot that was seen last, if one was. It does not decide:
	// a Shoot that was made again for the same cluster has to go as well.
	UID string
	// Cluster and Installation have to be on its labels.
	Cluster, Installation string
}

// Applied is what became of a Manifest.
type Applied struct {
	UID string
	// Generation is the Shoot's own, after the request.
	Generation int64
	// Created and Changed say what was done: neither means that the Shoot was
	// already as it should be.
	Created, Changed bool
}

// Deletion is what became of a request to delete.
type Deletion struct {
	// Absent is whether a live look found no such Shoot. Otherwise Gardener has
	// taken the request, and is at it.
	Absent bool
}

// Observed is what a Shoot says of itself.
type Observed struct {
	Name            string
	UID             string
	ResourceVersion string
	Created         time.Time

	Cluster        string // of LabelCluster
	Installation   string // of LabelInstallation
	SentGeneration int64  // of AnnotationGeneration, 0 if there is none

	Generation         int64
	ObservedGeneration int64
	Deleting           bool // it has a deletionTimestamp
	Hibernated         bool
	Version            string // of Kubernetes, as the spec has it now

	// LastOperation is what Gardener does or did last; nil before it began.
	LastOperation *Operation
	LastErrors    []LastError
	Conditions    []Condition
}

// An Operation is what Gardener does with a Shoot.
type Operation struct {
	Type        string // Create, Reconcile, Delete, Migrate, Restore
	State       string // Pending, Processing, Succeeded, Error, Failed, Aborted
	Progress    int    // percent
	Description string
	Updated     time.Time
}

// A LastError is why an operation did not succeed.
type LastError struct {
	Description string
	Codes       []string
}

// A Condition is one aspect of a Shoot's health.
type Condition struct {
	Type    string
	Status  string // True, False, Unknown, Progressing
	Reason  string
	Message string
}

// An EventType is what a watch tells of a Shoot.
type EventType int

// What a watch tells.
const (
	// Seen is a Shoot as it is now, new or changed.
	Seen EventType = iota
	// Gone is a Shoot that is no more, as it was last.
	Gone
	// Mark is no Shoot but a resource version to go on from.
	Mark
)

// An Event is one message of a watch.
type Event struct {
	Type  EventType
	Shoot Observed // of a Mark only its ResourceVersion
}

// A List is all Shoots of an installation at one time.
type List struct {
	Shoots []Observed
	// ResourceVersion is where a watch goes on from.
	ResourceVersion string
}
