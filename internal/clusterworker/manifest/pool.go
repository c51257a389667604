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

// newWorkers builds the worker groups, in the order of their names, as the order of the
// pools has no meaning.
func (m *Maker) newWorkers(p *problems, pools []clusterworker.Pool, region string) []shoot.Worker {
	if len(pools) == 0 {
		pools = []clusterworker.Pool{{Name: defaultPool}}
	}
	pools = slices.SortedFunc(slices.Values(pools), func(a, b clusterworker.Pool) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	var machines int64
	out := make([]shoot.Worker, len(pools))
	for i, pool := range pools {
		p.where = fmt.Sprintf("node pool %q: ", pool.Name)
		if i > 0 && pool.Name == pools[i-1].Name {
			p.addf("the name is used twice")
		}
		if !isValidWorkerName(pool.Name) {
			p.addf("the name must be 1 to %d lower-case letters, digits and hyphens, beginning and ending with a letter or digit", maxWorkerName)
		}
		out[i] = m.newWorker(openObject(p, "spec", pool.Spec), pool.Name, region)
		machines += int64(out[i].Maximum)
	}
	p.where = ""
	if machines == 0 && len(p.list) == 0 {
		p.addf("no node pool allows a machine, and Gardener requires at least one: set the maximum of a node pool to 1 or more")
	}
	return out
}

// isValidWorkerName reports whether a name is a DNS label within the limit.
func isValidWorkerName(name string) bool {
	edge := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	for _, c := range []byte(name) {
		if c != '-' && !edge(c) {
			return false
		}
	}
	return name != "" && len(name) <= maxWorkerName && edge(name[0]) && edge(name[len(name)-1])
}

func (m *Maker) newWorker(spec object, name, region string) shoot.Worker {
	w := shoot.Worker{
		Name:    name,
		Machine: shoot.Machine{Type: cmp.Or(spec.readText("machineType", "machine_type"), m.MachineType), Image: readImage(spec)},
		Volume:  m.newVolume(spec),
		Zones:   m.workerZones(spec, region),
		Labels:  spec.readTextMap("labels"),
		Taints:  readTaints(spec),
	}
	if w.Machine.Type == "" {
		spec.addMissing("machineType", "no default machine type is configured")
	}
	w.Minimum, w.Maximum = readMachineCounts(spec)
	return w
}

// readMachineCounts returns the minimum and maximum number of machines.
func readMachineCounts(spec object) (minimum, maximum int32) {
	autoscaling := spec.readObject("autoscaling")
	replicas, fixed := spec.readCount("replicas")
	minimum, hasMinimum := readEither(spec, "minimum", autoscaling, "min")
	maximum, hasMaximum := readEither(spec, "maximum", autoscaling, "max")
	switch {
	case fixed && (hasMinimum || hasMaximum):
		spec.p.addf("%s sets a fixed number of machines; remove it, or remove minimum and maximum", spec.pathOf("replicas"))
	case fixed:
		return replicas, replicas
	case hasMinimum != hasMaximum:
		spec.p.addf("only one of minimum and maximum is set; set both, or set %s", spec.pathOf("replicas"))
	case !hasMinimum:
		return defaultMinimum, defaultMaximum
	case maximum < minimum:
		spec.p.addf("maximum %d is less than minimum %d", maximum, minimum)
	}
	return minimum, maximum
}

// readEither reads a number that can be in one of two places.
func readEither(a object, keyA string, b object, keyB string) (int32, bool) {
	x, okX := a.readCount(keyA)
	y, okY := b.readCount(keyB)
	if okX && okY && x != y {
		a.p.addf("%s and %s have different values; set only one of them", a.pathOf(keyA), b.pathOf(keyB))
	}
	if okX {
		return x, true
	}
	return y, okY
}

// readImage returns nil if Gardener chooses the image and keeps it up to date.
func readImage(spec object) *shoot.Image {
	o := spec.readObject("image")
	i := shoot.Image{Name: o.readText("name"), Version: o.readText("version")}
	if i.Name != "" {
		return &i
	}
	if i.Version != "" {
		o.addMissing("name", "the image name is required with a version")
	}
	return nil
}

func (m *Maker) newVolume(spec object) *shoot.Volume {
	o := spec.readObject("volume")
	v := shoot.Volume{Type: cmp.Or(o.readText("type"), m.VolumeType), Size: cmp.Or(o.readText("size"), m.VolumeSize)}
	switch {
	case m.needs.volume && v.Type == "":
		o.addMissing("type", m.requiredReason())
	case m.needs.volume && v.Size == "":
		o.addMissing("size", m.requiredReason())
	case v.Size == "" && v.Type != "":
		o.addMissing("size", "a volume requires a size and no default is configured")
	case v.Size == "":
		return nil
	}
	return &v
}

// workerZones returns the zones of the pool, or the default ones, which are valid only
// in the default region.
func (m *Maker) workerZones(spec object, region string) []string {
	zones := spec.readTexts("zones")
	if len(zones) == 0 && region == m.Region {
		zones = slices.Clone(m.Zones)
	}
	if len(zones) == 0 && m.needs.zones {
		spec.addMissing("zones", m.requiredReason()+" for the region")
	}
	return zones
}

func readTaints(spec object) []shoot.Taint {
	var out []shoot.Taint
	for _, o := range spec.readObjects("taints") {
		t := shoot.Taint{Key: o.readText("key"), Value: o.readText("value"), Effect: o.readText("effect")}
		if t.Key == "" {
			o.addMissing("key", "a taint requires a key")
		}
		switch t.Effect {
		case "NoSchedule", "PreferNoSchedule", "NoExecute":
		default:
			o.p.addf("%s is %q; must be NoSchedule, PreferNoSchedule or NoExecute", o.pathOf("effect"), t.Effect)
		}
		out = append(out, t)
	}
	return out
}
