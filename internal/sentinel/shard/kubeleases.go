package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// Limits of requests to the API server. A member writes every two seconds, and once for
// each member that joins or leaves.
const (
	qps   = 20
	burst = 50
)

// listTimeout limits the list at the start of a watch.
const listTimeout = 10 * time.Second

// KubeLeases stores the records of one group in Leases of one namespace of the host cluster, one for
// each member. Create it with NewKubeLeases. It is safe for concurrent use.
//
// `kubectl get leases -l fleetloop.io/shard-group=NAME` shows the holder of each, and with -o yaml since
// when, the last renewal, its duration, and the members that the holder includes. A Lease without a
// holder is over: its member has left, or was declared lost.
//
// No other client should write to them. If a Lease is deleted by hand, its member creates it again and
// owns nothing meanwhile; a replica that starts in this very moment may take over early.
//
// The client requires these permissions:
//
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=list;watch;create;update;delete
type KubeLeases struct {
	client client.LeaseInterface
	group  string // as a label value
	close  func()
}

// NewKubeLeases returns a client for the Leases of a group. It sends no request, and does not
// change cfg.
func NewKubeLeases(cfg *rest.Config, namespace, group string) (*KubeLeases, error) {
	if namespace == "" || group == "" {
		return nil, errors.New("manage leases: namespace and group name are required")
	}
	own := rest.CopyConfig(cfg)
	own.QPS, own.Burst, own.RateLimiter = qps, burst, nil
	// Each concurrent request has a connection. With HTTP/2 all would share one. If
	// that broke silently, no request would succeed until the break is detected, which
	// takes longer than a lease lasts.
	own.NextProtos = []string{"http/1.1"}
	hc, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("manage leases of group %q: %w", group, err)
	}
	c, err := client.NewForConfigAndClient(own, hc)
	if err != nil {
		return nil, fmt.Errorf("manage leases of group %q: %w", group, err)
	}
	return &KubeLeases{client: c.Leases(namespace), group: toValidLabelValue(group), close: hc.CloseIdleConnections}, nil
}

// Close closes idle connections.
func (l *KubeLeases) Close() { l.close() }

// Watch reports all Leases of the group, and then each change, until ctx ends or the
// watch does. The error is the reason.
func (l *KubeLeases) Watch(ctx context.Context, handle func(LeaseChange)) error {
	selector := GroupLabel + "=" + l.group
	lctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	// Without a resource version the list is current.
	list, err := l.client.List(lctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	all := LeaseChange{All: true}
	if all.Version, err = parseVersion(list.ResourceVersion); err != nil {
		return err
	}
	for i := range list.Items {
		r, err := decodeLease(&list.Items[i])
		if err != nil {
			return err
		}
		all.Records = append(all.Records, r)
	}
	handle(all)

	w, err := l.client.Watch(ctx, metav1.ListOptions{
		LabelSelector: selector, ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e, ok := <-w.ResultChan():
			if !ok {
				return errors.New("watch closed by the API server")
			}
			c, err := changeOf(e)
			if err != nil {
				return err
			}
			handle(c)
		}
	}
}

// changeOf returns the change of a watch event.
func changeOf(e watch.Event) (c LeaseChange, err error) {
	if e.Type == watch.Error {
		return c, apierrors.FromObject(e.Object)
	}
	if c.Version, err = versionOf(e.Object); err != nil {
		return c, err
	}
	lease, ok := e.Object.(*coordinationv1.Lease)
	switch {
	case !ok:
		return c, fmt.Errorf("unexpected object %T in the list of leases", e.Object)
	case e.Type == watch.Deleted:
		c.Gone = []string{lease.Name}
	case e.Type != watch.Bookmark:
		r, err := decodeLease(lease)
		if err != nil {
			return c, err
		}
		c.Records = []Record{r}
	}
	return c, nil
}

// Put writes r if the stored version is that of r.
func (l *KubeLeases) Put(ctx context.Context, r Record) (Record, error) {
	lease := l.encodeLease(r)
	var err error
	if r.Version == 0 {
		lease, err = l.client.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		lease, err = l.client.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return Record{}, wrapAsGoneOrConflict(ctx, r, err)
	}
	return decodeLease(lease)
}

// Delete deletes the Lease of r if the stored version is that of r.
func (l *KubeLeases) Delete(ctx context.Context, r Record) error {
	at, uid := strconv.FormatUint(r.Version, 10), types.UID(r.Object)
	err := l.client.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &at, UID: &uid}})
	if err != nil {
		return wrapAsGoneOrConflict(ctx, r, err)
	}
	return nil
}

// wrapAsGoneOrConflict wraps the errors that callers branch on.
func wrapAsGoneOrConflict(ctx context.Context, r Record, err error) error {
	switch {
	case apierrors.IsNotFound(err) && r.Version > 0:
		err = ErrGone
	case apierrors.IsAlreadyExists(err), isStatus(err, http.StatusConflict):
		err = ErrConflict
	case ctx.Err() != nil:
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return fmt.Errorf("lease %q: %w", r.Name, err)
}

func isStatus(err error, code int32) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code == code
}

func versionOf(o runtime.Object) (uint64, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return 0, fmt.Errorf("read lease change: %w", err)
	}
	return parseVersion(m.GetResourceVersion())
}

// parseVersion parses a resource version, which is a number that rises with every
// write.
func parseVersion(text string) (uint64, error) {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q is not a number and cannot be compared", text)
	}
	return v, nil
}
