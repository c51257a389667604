// Package shoot has the parts of a Gardener Shoot that Fleetloop writes and reads, and
// the results of requests.
//
// PrepareManifestForUpdate decides the manifest to send for a Shoot, given the live Shoot. It is the
// same for every kind of garden.
//
// A Manifest marshals to the JSON of Gardener's API. Unset fields are omitted, so that
// Gardener's defaults and the values of other writers stay. The configurations of
// providers are opaque: extensions of the same name differ in their fields.
package shoot

import (
	"encoding/json"
	"time"
)

// The API of Shoots.
const (
	APIVersion = "core.gardener.cloud/v1beta1"
	Kind       = "Shoot"
)

// Labels and annotations of Fleetloop's Shoots.
const (
	// LabelCluster is the id of the Shoot's cluster.
	LabelCluster = "fleetloop.io/cluster-id"
	// LabelInstallation is the id of the database of that cluster. Shoots of other
	// installations in the same project are ignored.
	LabelInstallation = "fleetloop.io/installation"
	// AnnotationGeneration is the generation of the sync row that was sent last.
	AnnotationGeneration = "fleetloop.io/generation"
	// AnnotationHistory is the id of the database history that AnnotationGeneration
	// belongs to. A restore or a promotion of the database begins a new one.
	AnnotationHistory = "fleetloop.io/database-history"
	// AnnotationName is the name of the cluster in the fleet API.
	AnnotationName = "fleetloop.io/cluster-name"
	// AnnotationConfirmDeletion must be "true" before Gardener accepts a deletion.
	AnnotationConfirmDeletion = "confirmation.gardener.cloud/deletion"
)

// A Manifest is the part of a Shoot that Fleetloop writes.
type Manifest struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`

	// Known are the generations that the database knows to have been sent. A Shoot of
	// another history of the database with a higher one is not changed.
	Known KnownGenerations `json:"-"`
}

// KnownGenerations are the generations of a cluster that its database knows to have been sent. Each is the highest.
type KnownGenerations struct {
	// Synced is the generation of the last recorded success. Zero means none.
	Synced int64
	// Sent holds the generations that were claimed since, by history of the database. AnyHistory stands for all.
	Sent map[string]int64
}

// AnyHistory stands for all histories of a database.
const AnyHistory = "*"

// highestIn returns the highest generation that a history is known to have sent.
func (k KnownGenerations) highestIn(history string) int64 {
	return max(k.Synced, k.Sent[history], k.Sent[AnyHistory])
}

// Metadata identifies a Shoot, and has its labels and annotations.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec is the desired state of the Shoot.
type Spec struct {
	CloudProfile           CloudProfile `json:"cloudProfile"`
	CredentialsBindingName string       `json:"credentialsBindingName,omitempty"`
	Region                 string       `json:"region"`
	Kubernetes             Kubernetes   `json:"kubernetes"`
	Networking             *Networking  `json:"networking,omitempty"`
	Provider               Provider     `json:"provider"`
}

// CloudProfile refers to the offers of the provider.
type CloudProfile struct {
	Name string `json:"name"`
	Kind string `json:"kind,omitempty"`
}

// Kubernetes is the Kubernetes configuration of the Shoot.
type Kubernetes struct {
	Version string `json:"version,omitempty"`
}

// Networking is the network of the Shoot. Gardener chooses an empty range.
type Networking struct {
	Type     string `json:"type,omitempty"`
	Nodes    string `json:"nodes,omitempty"`
	Pods     string `json:"pods,omitempty"`
	Services string `json:"services,omitempty"`
}

// Provider is the infrastructure of the Shoot.
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

// Machine is the machine type and image of a worker. Without an image Gardener uses the
// newest one, and keeps it up to date.
type Machine struct {
	Type  string `json:"type"`
	Image *Image `json:"image,omitempty"`
}

// Image is an operating system image.
type Image struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Volume is the disk of a machine.
type Volume struct {
	Type string `json:"type,omitempty"`
	Size string `json:"size"`
}

// Taint keeps away Pods that do not tolerate it.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// Ref identifies a Shoot that exists or existed.
type Ref struct {
	Name string
	// UID is the uid of the last observed Shoot, if any. It does not decide: a Shoot
	// that was created again for the same cluster is deleted as well.
	UID string
	// Cluster and Installation have to match the labels of the Shoot.
	Cluster, Installation string
}

// Applied is the result of an apply.
type Applied struct {
	UID string
	// Generation is the Shoot's metadata.generation after the request.
	Generation int64
	// Created and Changed are the effects of the request; neither is set if the Shoot
	// already matched the manifest.
	Created, Changed bool
	// SentBefore is the value of AnnotationGeneration before the request, 0 if absent.
	SentBefore int64
}

// Deletion is the result of a delete request.
type Deletion struct {
	// Absent is whether a live read found no such Shoot. Otherwise Gardener has
	// accepted the request, and the deletion is in progress.
	Absent bool
	// UID is that of the Shoot, empty if it is absent.
	UID string
}

// Observed is the observed state of a Shoot.
type Observed struct {
	Name            string
	UID             string
	ResourceVersion string
	Created         time.Time

	Cluster        string // value of LabelCluster
	Installation   string // value of LabelInstallation
	SentGeneration int64  // value of AnnotationGeneration, 0 if absent
	History        string // value of AnnotationHistory

	Generation         int64
	ObservedGeneration int64
	Deleting           bool // it has a deletionTimestamp
	Hibernated         bool
	Version            string // Kubernetes version of the current spec

	// LastOperation is the current or last operation of Gardener, nil before the first.
	LastOperation *Operation
	LastErrors    []LastError
	Conditions    []Condition
}

// An Operation is an action of Gardener on a Shoot.
type Operation struct {
	Type        string // Create, Reconcile, Delete, Migrate, Restore
	State       string // Pending, Processing, Succeeded, Error, Failed, Aborted
	Progress    int    // percent
	Description string
	Updated     time.Time
}

// A LastError is the reason why an operation did not succeed.
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

// An EventType is the kind of a watch event.
type EventType int

// Kinds of watch events.
const (
	// Seen is a Shoot in its current state, new or changed.
	Seen EventType = iota
	// Gone is a deleted Shoot, in its last state.
	Gone
	// Mark is a resource version to continue from, without a Shoot.
	Mark
)

// An Event is one message of a watch.
type Event struct {
	Type  EventType
	Shoot Observed // for a Mark only its ResourceVersion
}

// A List is all Shoots of an installation at one time.
type List struct {
	Shoots []Observed
	// ResourceVersion is where a watch continues.
	ResourceVersion string
}
