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
	// maxWorkerName is how long Gardener lets the name of a worker group be.
	maxWorkerName = 15

	// defaultPool is the pool of a cluster that has none. Gardener can not give
	// workers to a Shoot that was made without.
	defaultPool = "default"

	// defaultMinimum and defaultMaximum hold for pools that do not say.
	defaultMinimum, defaultMaximum = 1, 3
)

// workers makes the worker groups, in the order of their names: that of the
// pools is not part of what a cluster is.
func (m *Maker) workers(p *problems, pools []clusterworker.Pool, region string) []shoot.Worker {
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
			p.add("the name is used twice")
		}
		if !validWorkerName(pool.Name) {
			p.add("the name must be 1 to %d lower-case letters, digits and hyphens, beginning and ending with a letter or digit", maxWorkerName)
		}
		out[i] = m.worker(open(p, "spec", pool.Spec), pool.Name, region)
		machines += int64(out[i].Maximum)
	}
	p.where = ""
	if machines == 0 && len(p.list) == 0 {
		p.add("no node pool allows a machine, and Gardener requires at least one: set the maximum of a node pool to 1 or more")
	}
	return out
}

// validWorkerName reports whether a name is a DNS label that is not too long.
func validWorkerName(name string) bool {
	edge := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	for _, c := range []byte(name) {
		if c != '-' && !edge(c) {
			return false
		}
	}
	return name != "" && len(name) <= maxWorkerName && edge(name[0]) && edge(name[len(name)-1])
}

func (m *Maker) worker(spec object, name, region string) shoot.Worker {
	w := shoot.Worker{
		Name:    name,
		Machine: shoot.Machine{Type: cmp.Or(spec.text("machineType", "machine_type"), m.MachineType), Image: image(spec)},
		Volume:  m.volume(spec),
		Zones:   m.zones(spec, region),
		Labels:  spec.textMap("labels"),
		Taints:  taints(spec),
	}
	if w.Machine.Type == "" {
		spec.missing("machineType", "no default machine type is configured")
	}
	w.Minimum, w.Maximum = size(spec)
	return w
}

// size is between how many machines Gardener chooses.
func size(spec object) (minimum, maximum int32) {
	autoscaling := spec.object("autoscaling")
	replicas, fixed := spec.count("replicas")
	minimum, hasMinimum := either(spec, "minimum", autoscaling, "min")
	maximum, hasMaximum := either(spec, "maximum", autoscaling, "max")
	switch {
	case fixed && (hasMinimum || hasMaximum):
		spec.p.add("%s sets a fixed number of machines; remove it, or remove minimum and maximum", spec.at("replicas"))
	case fixed:
		return replicas, replicas
	case hasMinimum != hasMaximum:
		spec.p.add("only one of minimum and maximum is set; set both, or set %s", spec.at("replicas"))
	case !hasMinimum:
		return defaultMinimum, defaultMaximum
	case maximum < minimum:
		spec.p.add("maximum %d is less than minimum %d", maximum, minimum)
	}
	return minimum, maximum
}

// either reads a number that can be at one of two places.
func either(a object, keyA string, b object, keyB string) (int32, bool) {
	x, okX := a.count(keyA)
	y, okY := b.count(keyB)
	if okX && okY && x != y {
		a.p.add("%s and %s have different values; set only one of them", a.at(keyA), b.at(keyB))
	}
	if okX {
		return x, true
	}
	return y, okY
}

// image is nil if Gardener is to choose it, and to keep it up to date.
func image(spec object) *shoot.Image {
	o := spec.object("image")
	i := shoot.Image{Name: o.text("name"), Version: o.text("version")}
	if i.Name != "" {
		return &i
	}
	if i.Version != "" {
		o.missing("name", "the image name is required with a version")
	}
	return nil
}

func (m *Maker) volume(spec object) *shoot.Volume {
	o := spec.object("volume")
	v := shoot.Volume{Type: cmp.Or(o.text("type"), m.VolumeType), Size: cmp.Or(o.text("size"), m.VolumeSize)}
	switch {
	case m.needs.volume && v.Type == "":
		o.missing("type", m.needed())
	case m.needs.volume && v.Size == "":
		o.missing("size", m.needed())
	case v.Size == "" && v.Type != "":
		o.missing("size", "a volume requires a size and no default is configured")
	case v.Size == "":
		return nil
	}
	return &v
}

// zones are the pool's own, or the default ones, which are those of one region.
func (m *Maker) zones(spec object, region string) []string {
	zones := spec.texts("zones")
	if len(zones) == 0 && region == m.Region {
		zones = slices.Clone(m.Zones)
	}
	if len(zones) == 0 && m.needs.zones {
		spec.missing("zones", m.needed()+" for the region")
	}
	return zones
}

func taints(spec object) []shoot.Taint {
	var out []shoot.Taint
	for _, o := range spec.objects("taints") {
		t := shoot.Taint{Key: o.text("key"), Value: o.text("value"), Effect: o.text("effect")}
		if t.Key == "" {
			o.missing("key", "a taint requires a key")
		}
		switch t.Effect {
		case "NoSchedule", "PreferNoSchedule", "NoExecute":
		default:
			o.p.add("%s is %q; must be NoSchedule, PreferNoSchedule or NoExecute", o.at("effect"), t.Effect)
		}
		out = append(out, t)
	}
	return out
}
