package gardenbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// gardenerGroups returns the API groups of Gardener's API server.
func gardenerGroups() []schema.GroupVersion {
	return []schema.GroupVersion{
		{Group: "core.gardener.cloud", Version: "v1"},
		{Group: "core.gardener.cloud", Version: "v1beta1"},
		{Group: "operations.gardener.cloud", Version: "v1alpha1"},
		{Group: "security.gardener.cloud", Version: "v1alpha1"},
		{Group: "seedmanagement.gardener.cloud", Version: "v1alpha1"},
		{Group: "settings.gardener.cloud", Version: "v1alpha1"},
	}
}

// awaitGardenerServed waits until the API server of Kubernetes forwards to that of Gardener.
// Its checks have growing intervals; a change of the APIService triggers one at once.
func (b *Bed) awaitGardenerServed(ctx context.Context) error {
	client, err := rest.HTTPClientFor(b.kube.Config())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	services := b.client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	for _, g := range gardenerGroups() {
		err := b.pollUntilOK(ctx, func(ctx context.Context) error {
			err := checkURL(ctx, client, b.kube.URL()+"/apis/"+g.String())
			if err == nil {
				return nil
			}
			nudge := fmt.Sprintf(`{"metadata":{"annotations":{"gardenbed.fleetloop.io/asked":%q}}}`, time.Now().Format(time.RFC3339Nano))
			_, nudged := services.Patch(ctx, g.Version+"."+g.Group, types.MergePatchType, []byte(nudge), metav1.PatchOptions{})
			return errors.Join(err, nudged)
		})
		if err != nil {
			return fmt.Errorf("wait for %s: %w", g, err)
		}
	}
	return nil
}

// checkURL returns an error unless a URL answers 200.
func checkURL(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	const most = 10_000
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return nil
}

// pollUntilOK calls check until it returns no error, as long as the programs run.
// Permanent errors are not retried.
func (b *Bed) pollUntilOK(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, servedBound, errServedBound)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return err
		}
		if ended := b.kube.Ready(); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
