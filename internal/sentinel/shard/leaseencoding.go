package shard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels and annotations for the fields of a record without a field in a Lease.
const (
	// GroupLabel is the label with the name of the group.
	GroupLabel = "fleetloop.io/shard-group"

	// StateAnnotation is the annotation with the state.
	StateAnnotation = "fleetloop.io/shard-state"

	// IncludesAnnotation is the annotation with the other members that this one includes, each
	// with its epoch, such as "a/1 b/3".
	IncludesAnnotation = "fleetloop.io/shard-includes"
)

// toValidLabelValue returns a name as a label value. A name that is too long or has invalid
// characters is cut and gets a part of its hash.
func toValidLabelValue(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	readable := []byte(name[:min(len(name), 40)])
	for i, c := range readable {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			readable[i] = '-'
		}
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimLeft(string(readable)+"-"+hex.EncodeToString(sum[:4]), "-")
}

// encodeLease returns the Lease of a record.
func (l *KubeLeases) encodeLease(r Record) *coordinationv1.Lease {
	var includes []string
	for _, name := range slices.Sorted(maps.Keys(r.Includes)) {
		includes = append(includes, fmt.Sprint(name, "/", r.Includes[name]))
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:   r.Name,
			Labels: map[string]string{GroupLabel: l.group},
			Annotations: map[string]string{
				StateAnnotation: string(r.State), IncludesAnnotation: strings.Join(includes, " "),
			},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(r.Identity),
			LeaseDurationSeconds: new(int32(min(math.Ceil(max(r.Duration.Seconds(), 1)), math.MaxInt32))),
			LeaseTransitions:     new(int32(min(r.Epoch, math.MaxInt32))),
			AcquireTime:          microTime(r.Since),
			RenewTime:            microTime(r.Renewed),
		},
	}
	if r.Version > 0 {
		lease.ResourceVersion = strconv.FormatUint(r.Version, 10)
		// Without the UID, the API server would create a deleted Lease again despite
		// the version.
		lease.UID = types.UID(r.Object)
	}
	if r.State.Over() {
		lease.Spec.HolderIdentity = new("") // the usual form of a release
	}
	return lease
}

func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewMicroTime(t))
}

// decodeLease returns the record of a Lease. It omits missing or invalid fields of a
// Lease that another client wrote. A record that includes no members and is not renewed
// is declared lost after a while.
func decodeLease(lease *coordinationv1.Lease) (Record, error) {
	v, err := parseVersion(lease.ResourceVersion)
	if err != nil {
		return Record{}, fmt.Errorf("lease %q: %w", lease.Name, err)
	}
	r := Record{
		Name: lease.Name, Version: v, Object: string(lease.UID), State: State(lease.Annotations[StateAnnotation]), Includes: map[string]uint64{},
	}
	for include := range strings.FieldsSeq(lease.Annotations[IncludesAnnotation]) {
		name, epoch, _ := strings.Cut(include, "/")
		if n, err := strconv.ParseUint(epoch, 10, 64); err == nil {
			r.Includes[name] = n
		}
	}
	s := lease.Spec
	if s.HolderIdentity != nil {
		r.Identity = *s.HolderIdentity
	}
	if s.LeaseDurationSeconds != nil {
		r.Duration = time.Duration(*s.LeaseDurationSeconds) * time.Second
	}
	if s.LeaseTransitions != nil && *s.LeaseTransitions > 0 {
		r.Epoch = uint64(*s.LeaseTransitions)
	}
	if s.AcquireTime != nil {
		r.Since = s.AcquireTime.Time
	}
	if s.RenewTime != nil {
		r.Renewed = s.RenewTime.Time
	}
	return r, nil
}
