package action

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// patchedPaths returns the paths that a patch changes, as JSON pointers, or the changes that are
// not allowed. A list counts as one value: changing a member changes the list.
//
// Only the spec, single labels and single annotations may be patched. The name, owners, finalizers
// and status of an object are therefore not allowed.
func patchedPaths(patchType string, patch json.RawMessage) (paths, problems []string) {
	var found pathCollector
	if patchType == patchJSON {
		found.addOperationPaths(patch)
	} else {
		found.addMergePatchPaths(patch)
	}
	slices.Sort(found.paths)
	slices.Sort(found.problems)
	return removeNestedPaths(slices.Compact(found.paths)), slices.Compact(found.problems)
}

// removeNestedPaths removes paths below other paths. The paths are sorted.
func removeNestedPaths(paths []string) []string {
	var kept []string
	for _, p := range paths {
		if !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(p, k+"/") }) {
			kept = append(kept, p)
		}
	}
	return kept
}

type pathCollector struct{ paths, problems []string }

func (f *pathCollector) addProblem(format string, args ...any) {
	f.problems = append(f.problems, "patch: "+fmt.Sprintf(format, args...))
}

// addMergePatchPaths adds the paths of a merge patch or a strategic merge patch.
func (f *pathCollector) addMergePatchPaths(patch json.RawMessage) {
	var body map[string]any
	if err := json.Unmarshal(patch, &body); err != nil || body == nil {
		f.addProblem("must be an object")
		return
	}
	for key, value := range body {
		switch key {
		case "metadata":
			f.addMetadataPaths(value)
		case "spec":
			f.addLeafPaths("/spec", value)
		default:
			f.addProblem("must not change %s", TruncateText(key, 64))
		}
	}
}

func (f *pathCollector) addMetadataPaths(value any) {
	members, ok := value.(map[string]any)
	if !ok {
		f.addProblem("metadata must be an object")
		return
	}
	for key, value := range members {
		if key != "labels" && key != "annotations" {
			f.addProblem("must not change metadata.%s", TruncateText(key, 64))
			continue
		}
		entries, ok := value.(map[string]any)
		if !ok {
			f.addProblem("metadata.%s must be an object", key)
			continue
		}
		for name := range entries {
			if strings.HasPrefix(name, "$") || name == v1alpha1.AnnotationLastExecution {
				f.addProblem("must not change metadata.%s[%s]", key, TruncateText(name, 64))
				continue
			}
			f.paths = append(f.paths, "/metadata/"+key+"/"+escapePointer(name))
		}
	}
}

// addLeafPaths adds the changes below a path. A directive of a strategic merge patch, such as $patch,
// changes the object that contains it.
func (f *pathCollector) addLeafPaths(path string, value any) {
	members, ok := value.(map[string]any)
	if !ok || len(members) == 0 || hasMergeDirective(members) {
		f.paths = append(f.paths, path)
		return
	}
	for key, member := range members {
		f.addLeafPaths(path+"/"+escapePointer(key), member)
	}
}

func hasMergeDirective(members map[string]any) bool {
	for key := range members {
		if strings.HasPrefix(key, "$") {
			return true
		}
	}
	return false
}

// addOperationPaths adds the paths of a JSON patch.
func (f *pathCollector) addOperationPaths(patch json.RawMessage) {
	var all []map[string]any
	if err := json.Unmarshal(patch, &all); err != nil {
		f.addProblem("must be a list of operations")
		return
	}
	for i, o := range all {
		op, _ := o["op"].(string)
		switch op {
		case "add", "replace", "remove", "test":
		case "move", "copy":
			f.addOperationPath(i, "from", o["from"])
		default:
			f.addProblem("[%d]: op must be one of add, replace, remove, move, copy, test", i)
			continue
		}
		f.addOperationPath(i, "path", o["path"])
	}
}

// addOperationPath adds the path of an operation up to the first list. List members are identified by
// index, which other operations may shift.
func (f *pathCollector) addOperationPath(operationIndex int, memberName string, pathValue any) {
	path, ok := pathValue.(string)
	segments := strings.Split(path, "/")
	if !ok || len(segments) < 2 || segments[0] != "" {
		f.addProblem("[%d]: %s must be a path, such as /spec/replicas", operationIndex, memberName)
		return
	}
	switch {
	case segments[1] == "spec":
		f.paths = append(f.paths, cutAtListIndex(segments))
	case len(segments) == 4 && segments[1] == "metadata" && (segments[2] == "labels" || segments[2] == "annotations") && path != markerPath:
		f.paths = append(f.paths, path)
	default:
		f.addProblem("[%d]: must not change %s", operationIndex, TruncateText(path, 64))
	}
}

// cutAtListIndex returns a path up to its first list index.
func cutAtListIndex(segments []string) string {
	for i, s := range segments {
		if s == "-" || s != "" && strings.Trim(s, "0123456789") == "" {
			return strings.Join(segments[:i], "/")
		}
	}
	return strings.Join(segments, "/")
}

// escapePointer escapes a key for a JSON pointer.
func escapePointer(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

func unescapePointer(segment string) string {
	return strings.ReplaceAll(strings.ReplaceAll(segment, "~1", "/"), "~0", "~")
}

// valuesAtPointers returns the values at the given paths; nil marks a missing one.
func valuesAtPointers(object map[string]any, paths []string) map[string]any {
	values := make(map[string]any, len(paths))
	for _, p := range paths {
		var at any = object
		for _, segment := range strings.Split(p, "/")[1:] {
			members, ok := at.(map[string]any)
			if !ok {
				at = nil
				break
			}
			at = members[unescapePointer(segment)]
		}
		values[p] = at
	}
	return values
}

// reversePatch returns the merge patch that leads from after to before.
func reversePatch(paths []string, before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for _, p := range paths {
		change, differs := mergeDiff(after[p], before[p])
		if !differs {
			continue
		}
		segments := strings.Split(p, "/")[1:]
		at := patch
		for _, s := range segments[:len(segments)-1] {
			at = ensureMap(at, unescapePointer(s))
		}
		at[unescapePointer(segments[len(segments)-1])] = change
	}
	return patch
}

// mergeDiff returns the merge patch from one value to another.
func mergeDiff(from, to any) (patch any, differs bool) {
	was, isObject := from.(map[string]any)
	is, becomesObject := to.(map[string]any)
	if !isObject || !becomesObject {
		return to, canonicalValue(from) != canonicalValue(to)
	}
	changes := map[string]any{}
	for key := range was {
		if _, stays := is[key]; !stays {
			changes[key] = nil
		}
	}
	for _, key := range slices.Collect(maps.Keys(is)) {
		if change, differs := mergeDiff(was[key], is[key]); differs {
			changes[key] = change
		}
	}
	return changes, len(changes) > 0
}
