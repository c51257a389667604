// Command renderer renders charts and kustomizations for the tests of this module.
//
// It reads one request a line from standard input and answers each with one line, until its input
// ends. The tests run it as a program of its own, because Helm and Kustomize take many times as long
// with the race detector.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/fleetloop/fleetloop/test/deploy"
)

func main() {
	if err := serveRenderRequests(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "renderer:", err)
		os.Exit(1)
	}
}

func serveRenderRequests(in io.Reader, out io.Writer) error {
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var request deploy.Request
		if err := decoder.Decode(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		answer, err := render(request)
		if err != nil {
			answer = deploy.Answer{Error: err.Error()}
		}
		if err := encoder.Encode(answer); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}

func render(request deploy.Request) (answer deploy.Answer, err error) {
	var manifest []byte
	if request.Kustomization != "" {
		manifest, err = buildKustomization(request.Kustomization)
	} else {
		manifest, answer.Notes, err = renderChart(request.Release)
	}
	if err != nil {
		return deploy.Answer{}, err
	}
	objects, err := deploy.ParseObjects(manifest)
	if err != nil {
		return deploy.Answer{}, err
	}
	for _, o := range objects {
		answer.Objects = append(answer.Objects, o.Object)
	}
	return answer, nil
}

// renderChart returns the hooks and the objects of a release.
func renderChart(r deploy.Release) (manifest []byte, notes string, err error) {
	chart, err := loader.LoadDir(r.Chart)
	if err != nil {
		return nil, "", fmt.Errorf("load chart: %w", err)
	}
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	install := action.NewInstall(cfg)
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName = r.Name
	install.Namespace = r.Namespace
	install.APIVersions = r.APIVersions
	install.KubeVersion = &common.KubeVersion{Version: "v1.37.1", Major: "1", Minor: "37"}
	out, err := install.Run(chart, r.Values)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // seen as it is by the tests of its words
	}
	done, ok := out.(*release.Release)
	if !ok {
		return nil, "", fmt.Errorf("render chart: a %T came back", out)
	}
	var text strings.Builder
	for _, hook := range done.Hooks {
		text.WriteString(hook.Manifest + "\n---\n")
	}
	text.WriteString(done.Manifest)
	return []byte(text.String()), done.Info.Notes, nil
}

// buildKustomization builds the kustomization in a folder.
func buildKustomization(folder string) ([]byte, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("build kustomization %q: %w", folder, err)
	}
	raw, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("write kustomization %q: %w", folder, err)
	}
	return raw, nil
}
