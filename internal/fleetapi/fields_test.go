package fleetapi

import (
	"reflect"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestFieldsOfTheStatus verifies that the parameter fields can select every member of a status.
func TestFieldsOfTheStatus(t *testing.T) {
	for field := range reflect.TypeFor[v1.Status]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, err := parseFields([]string{"status." + name}); err != nil {
			t.Errorf("status.%s: %v", name, err)
		}
	}
}
