package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fleetloop/fleetloop/devstack/binaries"
)

// releaseName stands in an argument for the name of the release.
const releaseName = "$(RELEASE)"

// A release is one version of the product.
type release struct {
	name   string
	source string // folder of the source, which has the manifests
	bin    string // folder of the programs
}

// expandPathAndArgs returns the path and the arguments of a program of the release.
func (r release) expandPathAndArgs(path string, args []string) (string, []string) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.bin, path)
	}
	var list []string
	for _, a := range args {
		list = append(list, strings.ReplaceAll(a, releaseName, r.name))
	}
	return path, list
}

func (r release) crds() string { return filepath.Join(r.source, "deploy", "crds") }

// buildReleases builds the programs of this source and, for an upgrade, those of the previous release.
func (t *topology) buildReleases(ctx context.Context) error {
	root, err := binaries.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	t.latest = release{name: "latest", source: root, bin: filepath.Join(t.dir, "bin")}
	t.first = t.latest
	if t.upgrade {
		commit := binaries.FindPreviousRelease(ctx, root)
		_, _ = fmt.Fprintf(t.out, "proof: the previous release is %s\n", commit)
		t.previous = release{name: "previous", source: filepath.Join(t.dir, "previous-source"), bin: filepath.Join(t.dir, "previous-bin")}
		t.first = t.previous
		if err := binaries.CheckOut(ctx, root, commit, t.previous.source); err != nil {
			return err
		}
		if err := errors.Join(replaceAdapterFolders(root, t.previous.source), t.buildRelease(ctx, t.previous, "")); err != nil {
			return err
		}
	}
	return t.buildRelease(ctx, t.latest, t.bug)
}

// buildRelease builds the programs of a release, with a planted bug unless it is empty.
func (t *topology) buildRelease(ctx context.Context, r release, bug string) error {
	o, err := newOverlay(filepath.Join(t.dir, r.name+"-overlay"))
	if err != nil {
		return err
	}
	if t.stepClocks {
		if err := o.addClock(ctx, r.source); err != nil {
			return err
		}
	}
	if bug != "" {
		planted, err := findBug(bug)
		if err != nil {
			return err
		}
		if err := o.addBug(planted, r.source); err != nil {
			return err
		}
	}
	if len(o.replaced) == 0 {
		return r.build(ctx)
	}
	flag, err := o.writeFlag()
	if err != nil {
		return err
	}
	return r.build(ctx, flag)
}

// replaceAdapterFolders copies the adapter into the source of an older release, so that it is built with the
// older kit.
func replaceAdapterFolders(fromRoot, toRoot string) error {
	for _, dir := range []string{"adapter", "history"} {
		path := filepath.Join("devstack", "proof", dir)
		if err := os.RemoveAll(filepath.Join(toRoot, path)); err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(toRoot, path), os.DirFS(filepath.Join(fromRoot, path))); err != nil {
			return err
		}
	}
	return nil
}

func (r release) build(ctx context.Context, flags ...string) error {
	packages := append(flags, "./devstack/proof/adapter")
	for _, name := range []string{"fleet-api", "sentinel", "cluster-worker", "execution-controller", "action-runner", "node-fault-controller"} {
		packages = append(packages, "./cmd/"+name)
	}
	if err := binaries.BuildPackages(ctx, r.source, r.bin, packages...); err != nil {
		return fmt.Errorf("the %s release: %w", r.name, err)
	}
	return nil
}

// applyManifests applies the roles and policies of a release.
func (t *topology) applyManifests(ctx context.Context, r release) error {
	deploy := filepath.Join(r.source, "deploy")
	everywhere := []string{"apply", "--server-side", "--force-conflicts"}
	for _, name := range []string{
		"admission-policies/validating", "admission-policies/mutating",
		"rbac/actions", "rbac/actions-cluster", "rbac/actions-controller", "rbac/actions-people",
		"rbac/node-faults", "rbac/sentinel", "rbac/sentinel-secrets", "rbac/sentinel-sharding", "gardener/cluster-worker",
	} {
		everywhere = append(everywhere, "--filename", filepath.Join(deploy, name+".yaml"))
	}
	for _, args := range [][]string{
		everywhere,
		{"apply", "--server-side", "--force-conflicts", "--namespace", targetNamespace, "--filename", filepath.Join(deploy, "rbac", "actions-namespace.yaml")},
		{"apply", "--server-side", "--force-conflicts", "--kustomize", filepath.Join(deploy, "policies")},
	} {
		if _, err := t.kube.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}
