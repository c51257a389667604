package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Request asks the renderer for the objects of a kustomization or, without one, of a release.
type Request struct {
	Release       Release
	Kustomization string `json:",omitempty"` // folder
}

// An Answer is what the renderer made of a request.
type Answer struct {
	Objects []map[string]any
	Notes   string
	Error   string // empty if it was rendered
}

func (a Answer) unstructuredObjects() []*unstructured.Unstructured {
	list := make([]*unstructured.Unstructured, 0, len(a.Objects))
	for _, o := range a.Objects {
		list = append(list, &unstructured.Unstructured{Object: o})
	}
	return list
}

// A renderer is the running program of the folder renderer. It ends with this process, which holds
// its standard input.
type renderer struct {
	mu      sync.Mutex // one request at a time
	encoder *json.Encoder
	decoder *json.Decoder
}

var startOnce = sync.OnceValues(buildAndStartRenderer) //nolint:gochecknoglobals // one renderer for all tests of a package

// ask sends a request to the renderer, which the first one starts.
func sendToRenderer(request Request) (Answer, error) {
	r, err := startOnce()
	if err != nil {
		return Answer{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.encoder.Encode(request); err != nil {
		return Answer{}, fmt.Errorf("ask the renderer: %w", err)
	}
	var answer Answer
	if err := r.decoder.Decode(&answer); err != nil {
		return Answer{}, fmt.Errorf("read the answer of the renderer: %w", err)
	}
	if answer.Error != "" {
		return Answer{}, errors.New(answer.Error)
	}
	return answer, nil
}

// buildAndStartRenderer builds the renderer without the race detector, and starts it.
func buildAndStartRenderer() (*renderer, error) {
	dir, err := os.MkdirTemp("", "fleetloop-renderer-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the renderer: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a program that runs needs its file no more
	program := filepath.Join(dir, "renderer")
	build := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-o", program, "github.com/fleetloop/fleetloop/test/deploy/renderer") //nolint:gosec // our own program
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the renderer: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(context.Background(), program) //nolint:gosec // our own program
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, fmt.Errorf("start the renderer: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the renderer: %w", err)
	}
	return &renderer{encoder: json.NewEncoder(in), decoder: json.NewDecoder(out)}, nil
}
