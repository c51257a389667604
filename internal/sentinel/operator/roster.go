package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A host is the part of the host cluster that the members use.
type host interface {
	objects
	// ApplyStatus sets the status fields that owner manages to the given ones.
	ApplyStatus(ctx context.Context, ref reference, status *v1alpha1.SentinelConfigStatus, owner string) error
}

// A reference identifies one life of an object.
type reference struct {
	types.NamespacedName
	UID types.UID
}

// An eventEmitter emits Kubernetes events about an object.
type eventEmitter interface {
	EmitOrLogEvent(ctx context.Context, ref reference, s InstanceState, e eventContent)
}

// An eventContent is the content of a Kubernetes event.
type eventContent struct {
	warning      bool
	reason, note string
}

// A memberSet holds a member for each object.
type memberSet struct {
	cfg  Config
	deps Deps
	host host
	tell eventEmitter
	log  *slog.Logger

	// loads counts failed loads of objects without a member.
	loads *sentinel.LoadErrors

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // of the run, in which members begin and end
	members map[types.NamespacedName]*member
}

func newMemberSet(cfg Config, deps Deps, h host, t eventEmitter) *memberSet {
	r := &memberSet{cfg: cfg, deps: deps, host: h, tell: t, log: deps.Log, members: map[types.NamespacedName]*member{}}
	r.loads = sentinel.NewLoadErrors(r.registererFor(""))
	return r
}

// registererFor returns the registerer of one object's metrics. The labels of the specification do not
// distinguish objects, so several objects get an additional label.
func (r *memberSet) registererFor(objectName string) prometheus.Registerer {
	if r.cfg.Name != "" || r.deps.Registerer == nil {
		return r.deps.Registerer
	}
	return prometheus.WrapRegistererWith(prometheus.Labels{LabelConfig: objectName}, r.deps.Registerer)
}

// setRunContext allows members to start until ctx ends.
func (r *memberSet) setRunContext(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx = ctx
}

// stopAllAndWait stops all members and waits for their end.
func (r *memberSet) stopAllAndWait() {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.members))
	r.mu.Unlock()
	for _, m := range all {
		m.stopAndWait()
	}
}

// getOrStartMember returns the member of an object, and creates it if necessary. It first stops the
// member of an earlier object with the same name.
func (r *memberSet) getOrStartMember(sc *v1alpha1.SentinelConfig) *member {
	ref := reference{NamespacedName: types.NamespacedName{Namespace: sc.Namespace, Name: sc.Name}, UID: sc.UID}
	r.mu.Lock()
	m := r.members[ref.NamespacedName]
	r.mu.Unlock()
	if m != nil && m.ref == ref {
		return m
	}
	if m != nil {
		m.stopAndWait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m = r.startMember(ref)
	r.members[ref.NamespacedName] = m
	return m
}

// startMember starts a member.
func (r *memberSet) startMember(ref reference) *member {
	ctx, cancel := context.WithCancel(r.ctx)
	m := &member{ref: ref, cancel: cancel}
	log, registerer, loads := r.log, r.registererFor(ref.Name), r.loads
	if r.cfg.Name == "" { // one of several members, which have their own log attribute and metrics
		log = log.With("config", ref.Name)
		loads = sentinel.NewLoadErrors(registerer)
	}
	m.reporter = newReporter(ref, r.cfg.Identity, r.host, r.tell, log)
	m.instance = NewInstance(InstanceDeps{
		OpenAPI:     r.deps.OpenAPI,
		OpenBroker:  r.deps.OpenBroker,
		NewPart:     func(count, index int) (sentinel.Shard, error) { return shard.NewStaticPart(count, index) },
		NewGroup:    func() (ReplicaGroup, error) { return r.newShardGroup(ref.Name, log, registerer) },
		Log:         log,
		Registerer:  registerer,
		LoadErrors:  loads,
		Tracer:      r.deps.Tracer,
		OnPublished: r.deps.OnPublished,
		OnChange:    m.reporter.requestReport,
	})
	m.wg.Go(func() { _ = m.instance.Run(ctx) }) // it ends with ctx, and then without an error
	m.wg.Go(func() { m.reporter.reportChangesThenRemoveStatus(ctx, m.instance.CurrentState) })
	return m
}

// stopAndRemoveMember stops the member of a deleted object, and reports whether there was one.
func (r *memberSet) stopAndRemoveMember(key types.NamespacedName) (found bool) {
	r.mu.Lock()
	m := r.members[key]
	r.mu.Unlock()
	if m == nil {
		return false
	}
	m.stopAndWait()
	r.mu.Lock()
	delete(r.members, key)
	r.mu.Unlock()
	return true
}

// forEachMember calls do for every member.
func (r *memberSet) forEachMember(do func(*member)) {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.members))
	r.mu.Unlock()
	for _, m := range all {
		do(m)
	}
}

// countLoadFailureOfAll counts that the objects could not be read: for each known object, or once if
// none is known.
func (r *memberSet) countLoadFailureOfAll() {
	known := false
	r.forEachMember(func(m *member) {
		known = true
		m.instance.CountLoadFailure()
	})
	if !known {
		r.countUnknownLoadFailure()
	}
}

// countLoadFailureOf counts that one object could not be read.
func (r *memberSet) countLoadFailureOf(key types.NamespacedName) {
	r.mu.Lock()
	m := r.members[key]
	r.mu.Unlock()
	if m == nil {
		r.countUnknownLoadFailure()
		return
	}
	m.instance.CountLoadFailure()
}

// countUnknownLoadFailure counts that an unknown object could not be read.
func (r *memberSet) countUnknownLoadFailure() {
	if err := r.loads.CountLoadFailure(""); err != nil {
		r.log.Error("metrics of a failed configuration load not registered", "err", err)
	}
}

// checkMemberReady returns why the member of an object cannot work now.
func (r *memberSet) checkMemberReady(name string) error {
	key := types.NamespacedName{Namespace: r.cfg.Namespace, Name: name}
	r.mu.Lock()
	m := r.members[key]
	r.mu.Unlock()
	if m == nil {
		return fmt.Errorf("%w: %s", errGone, key)
	}
	return m.instance.Ready()
}

// checkAnyLive returns an error if no member makes progress.
func (r *memberSet) checkAnyLive() error {
	var errs []error
	n := 0
	r.forEachMember(func(m *member) {
		n++
		if err := m.instance.Live(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.ref.Name, err))
		}
	})
	if len(errs) < n {
		return nil
	}
	return errors.Join(errs...)
}

// Decisions returns the latest decisions of all sentinels, by what each watches.
func (o *Operator) Decisions() map[string]*state.DecisionRecord {
	all := map[string]*state.DecisionRecord{}
	o.roster.forEachMember(func(m *member) {
		watches, decisions, ok := m.instance.Decisions()
		if !ok {
			return
		}
		if o.cfg.Name == "" {
			watches = m.ref.Name + ": " + watches
		}
		all[watches] = decisions
	})
	return all
}

// A member runs one object.
type member struct {
	ref      reference
	instance *Instance
	reporter *reporter
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// stopAndWait stops the member and waits for its end. It may be called again.
func (m *member) stopAndWait() {
	m.cancel()
	m.wg.Wait()
}
