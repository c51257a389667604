package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// maxWorkerName is Gardener's limit for the name of a worker group.
	maxWorkerName = 15

	// defaultPool is the pool of a cluster without pools. Gardener cannot add workers
	// to a Shoot that was created without them.
	defaultPool = "default"

	// defaultMinimum and defaultMaximum apply to pools without a size.
	defaultMinimum, defaultMaximum = 1, 3
)

// buildWorkers builds the worker groups, in the order of their names, as the order of the
// pools has no meaning.
func (m *Maker) buildWorkers(problems *specProblems, pools []clusterworker.Pool, region string) []shoot.Worker {
	if len(pools) == 0 {
		pools = []clusterworker.Pool{{Name: defaultPool}}
	}
	pools = slices.SortedFunc(slices.Values(pools), func(a, b clusterworker.Pool) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	var machines int64
	out := make([]shoot.Worker, len(pools))
	for i, pool := range pools {
		problems.where = fmt.Sprintf("node pool %q: ", pool.Name)
		if i > 0 && pool.Name == pools[i-1].Name {
			problems.addProblemf("the name is used twice")
		}
		if !isValidWorkerName(pool.Name) {
			problems.addProblemf(
				"the name must be 1 to %d lower-case letters, digits and hyphens, beginning and ending with a letter or digit",
				maxWorkerName,
			)
		}
		out[i] = m.buildWorker(decodeObject(problems, "spec", pool.Spec), pool.Name, region)
		machines += int64(out[i].Maximum)
	}
	problems.where = ""
	if machines == 0 && len(problems.list) == 0 {
		problems.addProblemf("no node pool allows a machine, and Gardener requires at least one: set the maximum of a node pool to 1 or more")
	}
	return out
}

// isValidWorkerName reports whether a name is a DNS label within the limit.
func isValidWorkerName(name string) bool {
	if name == "" || len(name) > maxWorkerName {
		return false
	}
	hasValidCharacters := strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	hasHyphenAtEdge := strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-")
	return hasValidCharacters && !hasHyphenAtEdge
}

func (m *Maker) buildWorker(spec specObject, name, region string) shoot.Worker {
	w := shoot.Worker{
		Name:    name,
		Machine: shoot.Machine{Type: cmp.Or(spec.readString("machineType", "machine_type"), m.MachineType), Image: readImageOrNil(spec)},
		Volume:  m.buildVolumeOrNil(spec),
		Zones:   m.readZonesOrDefault(spec, region),
		Labels:  spec.readStringMap("labels"),
		Taints:  readTaints(spec),
	}
	if w.Machine.Type == "" {
		spec.addMissingProblem("machineType", "no default machine type is configured")
	}
	w.Minimum, w.Maximum = readMachineCounts(spec)
	return w
}

// readMachineCounts returns the minimum and maximum number of machines.
func readMachineCounts(spec specObject) (minimum, maximum int32) {
	autoscaling := spec.readObject("autoscaling")
	replicas, fixed := spec.readNonNegativeInt("replicas")
	minimum, hasMinimum := readIntFromEither(spec, "minimum", autoscaling, "min")
	maximum, hasMaximum := readIntFromEither(spec, "maximum", autoscaling, "max")
	switch {
	case fixed && (hasMinimum || hasMaximum):
		spec.p.addProblemf("%s sets a fixed number of machines; remove it, or remove minimum and maximum", spec.childPath("replicas"))
	case fixed:
		return replicas, replicas
	case hasMinimum != hasMaximum:
		spec.p.addProblemf("only one of minimum and maximum is set; set both, or set %s", spec.childPath("replicas"))
	case !hasMinimum:
		return defaultMinimum, defaultMaximum
	case maximum < minimum:
		spec.p.addProblemf("maximum %d is less than minimum %d", maximum, minimum)
	}
	return minimum, maximum
}

// readIntFromEither reads a number that can be in one of two places.
func readIntFromEither(a specObject, keyA string, b specObject, keyB string) (n int32, ok bool) {
	x, okX := a.readNonNegativeInt(keyA)
	y, okY := b.readNonNegativeInt(keyB)
	if okX && okY && x != y {
		a.p.addProblemf("%s and %s have different values; set only one of them", a.childPath(keyA), b.childPath(keyB))
	}
	if okX {
		return x, true
	}
	return y, okY
}

// readImageOrNil returns nil if Gardener chooses the image and keeps it up to date.
func readImageOrNil(spec specObject) *shoot.Image {
	o := spec.readObject("image")
	i := shoot.Image{Name: o.readString("name"), Version: o.readString("version")}
	if i.Name != "" {
		return &i
	}
	if i.Version != "" {
		o.addMissingProblem("name", "the image name is required with a version")
	}
	return nil
}

func (m *Maker) buildVolumeOrNil(spec specObject) *shoot.Volume {
	o := spec.readObject("volume")
	v := shoot.Volume{Type: cmp.Or(o.readString("type"), m.VolumeType), Size: cmp.Or(o.readString("size"), m.VolumeSize)}
	switch {
	case m.needs.volume && v.Type == "":
		o.addMissingProblem("type", m.describeMissingDefault())
	case m.needs.volume && v.Size == "":
		o.addMissingProblem("size", m.describeMissingDefault())
	case v.Size == "" && v.Type != "":
		o.addMissingProblem("size", "a volume requires a size and no default is configured")
	case v.Size == "":
		return nil
	}
	return &v
}

// readZonesOrDefault returns the zones of the pool, or the default ones, which are valid only
// in the default region.
func (m *Maker) readZonesOrDefault(spec specObject, region string) []string {
	zones := spec.readStringList("zones")
	if len(zones) == 0 && region == m.Region {
		zones = slices.Clone(m.Zones)
	}
	if len(zones) == 0 && m.needs.zones {
		spec.addMissingProblem("zones", m.describeMissingDefault()+" for the region")
	}
	return zones
}

func readTaints(spec specObject) []shoot.Taint {
	var out []shoot.Taint
	for _, o := range spec.readObjectList("taints") {
		t := shoot.Taint{Key: o.readString("key"), Value: o.readString("value"), Effect: o.readString("effect")}
		if t.Key == "" {
			o.addMissingProblem("key", "a taint requires a key")
		}
		switch t.Effect {
		case "NoSchedule", "PreferNoSchedule", "NoExecute":
		default:
			o.p.addProblemf("%s is %q; must be NoSchedule, PreferNoSchedule or NoExecute", o.childPath("effect"), t.Effect)
		}
		out = append(out, t)
	}
	return out
}
