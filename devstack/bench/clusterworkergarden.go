package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	gardenShoots  = 500
	gardenTurns   = 5
	gardenSlots   = 32 // the default
	gardenCallers = 16
)

// shootCreationBench measures how many Shoots per second a worker creates on a real
// gardener-apiserver. It compares them with bare requests that create the same ones. Neither side
// limits its requests per second.
func shootCreationBench() bench {
	const name = "clusterworker.real_garden_vs_raw"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, _ = fmt.Fprintln(progress, "starting a garden")
		garden, err := gardenbed.Start(ctx, gardenbed.Options{})
		if err != nil {
			return nil, err
		}
		bed, err := startSyncDatabaseBed(ctx, 0)
		if err != nil {
			return nil, errors.Join(err, garden.Stop())
		}
		ratio, err := (&gardenRace{bed: bed, garden: garden}).measureWorkerVsRaw(ctx, progress)
		err = errors.Join(err, bed.stopBed(), garden.Stop())
		return []line{{kind: "ratio", name: name, value: ratio, op: ">=", want: 0.85}}, err
	}}
}

// A gardenRace creates Shoots in both ways, each time in a separate project.
type gardenRace struct {
	bed      *syncBed
	garden   *gardenbed.Bed
	clusters int // so far
	projects int
	made     [][]byte // the last objects of a worker, and their requests
}

func (r *gardenRace) measureWorkerVsRaw(ctx context.Context, progress io.Writer) (float64, error) {
	worker := &benchVariant{name: fmt.Sprintf("worker with %d slots", gardenSlots), run: r.measureWorker}
	raw := &benchVariant{name: fmt.Sprintf("%d callers without a worker", gardenCallers), run: r.measureRawCreates}
	if err := measureAlternately(ctx, gardenTurns, progress, func(context.Context) error { return nil }, worker, raw); err != nil {
		return 0, err
	}
	return medianRatio(worker, raw), nil
}

// createProject creates a project.
func (r *gardenRace) createProject(ctx context.Context) (namespace string, err error) {
	r.projects++
	return r.garden.ApplyProjectAndWait(ctx, fmt.Sprintf("race%d", r.projects))
}

// measureWorker lets a worker sync new clusters.
func (r *gardenRace) measureWorker(ctx context.Context) (perSecond float64, err error) {
	namespace, err := r.createProject(ctx)
	if err != nil {
		return 0, err
	}
	client, err := gardener.NewForConfig(r.garden.Config(), gardener.Config{Namespace: namespace, QPS: 1e6, Burst: 1e6}, r.bed.installation)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if err := r.bed.owner.InsertClustersWithPools(ctx, r.clusters, r.clusters+gardenShoots); err != nil {
		return 0, err
	}
	r.clusters += gardenShoots
	recorded := &recordedGarden{Garden: client}
	perSecond, err = r.bed.measureDrain(ctx, gardenShoots, gardenSlots, recorded, manifest.Config{Namespace: namespace, CredentialsBindingName: "local"})
	r.made = recorded.made
	return perSecond, err
}

// A recordedGarden records the requests to a garden.
type recordedGarden struct {
	clusterworker.Garden
	mu   sync.Mutex
	made [][]byte
}

// ApplyShoot applies a manifest.
func (g *recordedGarden) ApplyShoot(ctx context.Context, m shoot.Manifest, seen bool) (shoot.Applied, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return shoot.Applied{}, err
	}
	g.mu.Lock()
	g.made = append(g.made, text)
	g.mu.Unlock()
	return g.Garden.ApplyShoot(ctx, m, seen)
}

// measureRawCreates creates the worker's last objects in another project.
func (r *gardenRace) measureRawCreates(ctx context.Context) (perSecond float64, err error) {
	from, err := r.createProject(ctx)
	if err != nil {
		return 0, err
	}
	client, err := rest.HTTPClientFor(r.garden.Config())
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	url := r.garden.Config().Host + "/apis/" + shoot.APIVersion + "/namespaces/" + from + "/shoots"
	next := make(chan []byte, len(r.made))
	for _, text := range r.made {
		var m shoot.Manifest
		if err := json.Unmarshal(text, &m); err != nil {
			return 0, err
		}
		m.Metadata.Namespace = from
		if text, err = json.Marshal(m); err != nil {
			return 0, err
		}
		next <- text
	}
	close(next)
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range gardenCallers {
		g.Go(func() error {
			for text := range next {
				if err := postObject(ctx, client, url, text); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(len(r.made)) / time.Since(begin).Seconds(), err
}

// postObject creates one object, and reads the response.
func postObject(ctx context.Context, client *http.Client, url string, text []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("create a Shoot: %s: %s", resp.Status, answer)
	}
	return err
}
