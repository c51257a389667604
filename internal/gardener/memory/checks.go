package memory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Limits of Gardener for the combined length of the names of a Shoot and its project,
// and for the name of a worker.
const (
	maxNames  = 21
	maxWorker = 15
)

// newestVersion returns the newest available version.
func newestVersion(versions []string) string {
	best := ""
	for _, v := range versions {
		if shoot.IsNewerVersion(v, best) {
			best = v
		}
	}
	return best
}

// validateNewShoot returns Gardener's objections to a new Shoot.
func validateNewShoot(options *Options, manifest shoot.Manifest) error {
	return newInvalidErrorOrNil(
		slices.Concat(validateShootName(options.Project, manifest.Metadata.Name), validateSpec(options, manifest.Spec)),
	)
}

// planAndValidateChange returns the manifest to apply to a Shoot, or the objections to it.
func planAndValidateChange(
	options *Options, manifest shoot.Manifest, current *storedShoot,
) (shoot.Manifest, error) {
	manifest, err := shoot.PrepareManifestForUpdate(manifest, current.toLiveShoot())
	if err != nil {
		return manifest, err
	}
	return manifest, newInvalidErrorOrNil(
		slices.Concat(validateSpec(options, manifest.Spec), validateImmutableFields(manifest.Spec, current.spec)),
	)
}

func newInvalidErrorOrNil(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return shoot.NewClassErrorf(shoot.ClassInvalid, "%s", strings.Join(faults, ", "))
}

func validateShootName(project, name string) (faults []string) {
	if !isDNSLabel(name) {
		faults = append(faults, fmt.Sprintf("metadata.name: Invalid value: %q: must be lower case letters, digits and hyphens", name))
	}
	if strings.Contains(name, "--") {
		faults = append(faults, fmt.Sprintf("metadata.name: Invalid value: %q: name may not contain two consecutive hyphens", name))
	}
	if len(name)+len(project) > maxNames {
		faults = append(faults, fmt.Sprintf("metadata.name: Invalid value: %q: the length of the shoot name and the project name must not exceed %d characters (project: %s; shoot: %s)", name, maxNames, project, name))
	}
	return faults
}

func validateSpec(options *Options, spec shoot.Spec) []string {
	var faults []string
	for _, required := range []struct{ path, value string }{
		{"spec.cloudProfile.name", spec.CloudProfile.Name},
		{"spec.region", spec.Region},
		{"spec.provider.type", spec.Provider.Type},
	} {
		if required.value == "" {
			faults = append(faults, required.path+": Required value: must be set")
		}
	}
	if v := spec.Kubernetes.Version; len(options.Versions) > 0 && v != "" && !slices.ContainsFunc(options.Versions, func(known string) bool { return known == v || strings.HasPrefix(known, v+".") }) {
		faults = append(faults, fmt.Sprintf("spec.kubernetes.version: Unsupported value: %q: supported values: %q", v, options.Versions))
	}
	return append(faults, validateWorkers(options.MachineTypes, spec.Provider.Workers)...)
}

func validateWorkers(machineTypes []string, workers []shoot.Worker) []string {
	var faults []string
	add := func(i int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("spec.provider.workers[%d].", i)+fmt.Sprintf(format, args...))
	}
	most := int32(0)
	names := make(map[string]bool, len(workers))
	for i, w := range workers {
		if names[w.Name] {
			add(i, "name: Duplicate value: %q", w.Name)
		}
		names[w.Name] = true
		if !isDNSLabel(w.Name) {
			add(i, "name: Invalid value: %q: must be lower case letters, digits and hyphens", w.Name)
		}
		if len(w.Name) > maxWorker {
			add(i, "name: Too long: may not be more than %d bytes", maxWorker)
		}
		if w.Machine.Type == "" {
			add(i, "machine.type: Required value: must specify a machine type")
		} else if len(machineTypes) > 0 && !slices.Contains(machineTypes, w.Machine.Type) {
			add(i, "machine.type: Unsupported value: %q: supported values: %q", w.Machine.Type, machineTypes)
		}
		if w.Minimum < 0 || w.Maximum < 0 {
			add(i, "minimum: Invalid value: %d: minimum and maximum must not be negative", w.Minimum)
		}
		if w.Maximum < w.Minimum {
			add(i, "maximum: Forbidden: minimum value must be less or equal to maximum value")
		}
		most = max(most, w.Maximum)
	}
	if len(workers) > 0 && most == 0 {
		faults = append(faults, "spec.provider.workers: Forbidden: at least one worker pool must have a maximum above 0")
	}
	return faults
}

// validateImmutableFields returns the faults of changes to immutable fields of an existing Shoot.
func validateImmutableFields(wanted, current shoot.Spec) []string {
	var faults []string
	for _, fixed := range []struct{ path, is, was string }{
		{"spec.region", wanted.Region, current.Region},
		{"spec.provider.type", wanted.Provider.Type, current.Provider.Type},
		{"spec.networking.type", networkingOrZero(wanted).Type, networkingOrZero(current).Type},
		{"spec.networking.pods", networkingOrZero(wanted).Pods, networkingOrZero(current).Pods},
		{"spec.networking.services", networkingOrZero(wanted).Services, networkingOrZero(current).Services},
	} {
		if fixed.is != fixed.was && fixed.was != "" {
			faults = append(faults, fmt.Sprintf("%s: Invalid value: %q: field is immutable", fixed.path, fixed.is))
		}
	}
	switch before, after := len(current.Provider.Workers) > 0, len(wanted.Provider.Workers) > 0; {
	case before && !after:
		faults = append(faults, "spec.provider.workers: Forbidden: cannot switch from a Shoot with workers to a workerless Shoot")
	case after && !before:
		faults = append(faults, "spec.provider.workers: Forbidden: cannot switch from a workerless Shoot to a Shoot with workers")
	}
	return faults
}

func networkingOrZero(s shoot.Spec) shoot.Networking {
	if s.Networking == nil {
		return shoot.Networking{}
	}
	return *s.Networking
}

// isDNSLabel reports whether a name is a DNS label.
func isDNSLabel(name string) bool {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }
	strange := func(r rune) bool { return !letter(r) && r != '-' }
	return name != "" && !strings.ContainsFunc(name, strange) && !strings.HasPrefix(name, "-") && !strings.HasSuffix(name, "-")
}
