package intake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// withAge returns a report with the times of some time ago.
func withAge(r nodefault.Report, age time.Duration) nodefault.Report {
	at := metav1.NewMicroTime(time.Now().Add(-age).UTC().Truncate(time.Microsecond))
	r.Fault.DetectedAt, r.Fault.GeneratedAt = at, &at
	return r
}

// TestLateReport verifies that a report that was delayed, as in a frozen process, does not bring a fault back, whichever
// replica stores it, and that a later one does.
func TestLateReport(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	s, other := newFaultStore(t, c), newFaultStore(t, c)
	node := createNode(t, c)
	first, over := withAge(newFaultReport(node, "GPU/3"), 4*time.Minute), withAge(asHealthy(newFaultReport(node, "")), 3*time.Minute)
	again := withAge(newFaultReport(node, "GPU/3"), time.Minute)
	apply(t, s, first)
	apply(t, s, over)
	if err := other.Apply(t.Context(), []nodefault.Report{first}); !errors.Is(err, intake.ErrOutdated) || intake.Transient(err) {
		t.Errorf("late fault: %v", err)
	}
	wantFaults(t, c, node)
	apply(t, other, again)
	for _, late := range []nodefault.Report{first, over} {
		if err := s.Apply(t.Context(), []nodefault.Report{late}); !errors.Is(err, intake.ErrOutdated) {
			t.Errorf("late report, healthy %t: %v", late.Healthy, err)
		}
	}
	wantFaults(t, c, node, again)
	last := withAge(asHealthy(newFaultReport(node, "GPU/3")), 0)
	apply(t, s, last)
	wantFaults(t, c, node)
	wantEnd(t, c, node, last)
}

// TestNewerReportMeanwhile verifies that a report does not overwrite a newer one that another replica stores between the
// read and the write of a batch, before its first or its second change.
func TestNewerReportMeanwhile(t *testing.T) {
	t.Parallel()
	for _, change := range []int{1, 2} {
		c := newClient(t)
		other := newFaultStore(t, c)
		node := createNode(t, c)
		apply(t, other, withAge(newFaultReport(node, "GPU/2"), 4*time.Minute), withAge(newFaultReport(node, "GPU/3"), 4*time.Minute))
		over := withAge(asHealthy(newFaultReport(node, "GPU/3")), time.Minute)
		changes := 0
		meddling := interceptor.NewClient(c, interceptor.Funcs{Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if changes++; changes == change {
				if err := other.Apply(ctx, []nodefault.Report{over}); err != nil {
					t.Error(err)
				}
			}
			return w.Apply(ctx, o, opts...)
		}})
		worse := func(f *v1alpha1.Fault) { f.Message = "worse" }
		late := []nodefault.Report{
			withAge(newFaultReport(node, "GPU/2", worse), 2*time.Minute), withAge(newFaultReport(node, "GPU/3", worse), 2*time.Minute),
		}
		errs := intake.SplitReportErrors(newFaultStore(t, meddling).Apply(t.Context(), late), len(late))
		if errs[0] != nil || !errors.Is(errs[1], intake.ErrOutdated) {
			t.Errorf("before change %d: %v, want nil and %v", change, errs, intake.ErrOutdated)
		}
		if got := getNodeFault(t, c, node).Spec.Faults; len(got) != 1 || got[0].Entity != "GPU/2" || got[0].Message != "worse" {
			t.Errorf("before change %d: faults %+v, want the worse one of GPU/2", change, got)
		}
		wantEnd(t, c, node, over)
	}
}

func wantEnd(t *testing.T, c client.Client, node string, last nodefault.Report) {
	t.Helper()
	if got := getNodeFault(t, c, node).Spec.EndedFaults; len(got) != 1 || !got[0].GeneratedAt.Equal(last.Fault.GeneratedAt) {
		t.Errorf("ends %+v, want the one of %s", got, last.Fault.GeneratedAt)
	}
}

// TestOldCRD verifies that a store works with the CRD of a release that does not know the times of reports, and warns once.
func TestOldCRD(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/crds/fleetloop.io_nodefaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	delete(spec, "endedFaults")
	delete(spec["faults"].Items.Schema.Properties, "generatedAt")
	old := filepath.Join(t.TempDir(), "old.yaml")
	if text, err = yaml.Marshal(crd); err == nil {
		err = os.WriteFile(old, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	bed, err := kubebed.Start(t.Context(), kubebed.Options{CRDs: []string{old}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Stop() })
	c := newClientOf(t, bed)
	var warnings bytes.Buffer
	log := slog.New(slog.NewTextHandler(&warnings, nil))
	s, err := intake.NewFaultStore(intake.StoreConfig{}, intake.StoreDeps{Live: c, Write: c, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	node := createNode(t, c)
	fault := withAge(newFaultReport(node, "GPU/3"), 2*time.Minute)
	apply(t, s, fault)
	stored := fault
	stored.Fault.GeneratedAt = nil
	wantFaults(t, c, node, stored)
	apply(t, s, withAge(asHealthy(newFaultReport(node, "")), time.Minute))
	wantFaults(t, c, node)
	if got := strings.Count(warnings.String(), "apply deploy/crds"); got != 1 {
		t.Errorf("%d warnings, want one: %s", got, warnings.String())
	}
}

// TestManyEnds verifies that a node with the maximum number of ends still gets another one.
func TestManyEnds(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	s := newFaultStore(t, c)
	node := createNode(t, c)
	const most = 64
	for i := range most + 2 {
		entity := fmt.Sprintf("GPU/%d", i)
		age := time.Duration(200-i) * time.Second
		apply(t, s, withAge(newFaultReport(node, entity), age))
		apply(t, s, withAge(asHealthy(newFaultReport(node, entity)), age-time.Second))
	}
	wantFaults(t, c, node)
	ends := getNodeFault(t, c, node).Spec.EndedFaults
	if len(ends) != most || slices.ContainsFunc(ends, func(e v1alpha1.EndedFault) bool { return e.Entity == "GPU/0" || e.Entity == "GPU/1" }) {
		t.Errorf("%d ends: %+v", len(ends), ends)
	}
}
