package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

const crowdPatience = 120 * time.Second

// A crowd is the set of members of a group, on the API server, with a check: no resource may ever
// have two owners.
type crowd struct {
	t         *testing.T
	cfg       *rest.Config
	namespace string

	mu      sync.Mutex
	members []*shardMember
	made    int
}

func newCrowd(t *testing.T, bed *kubebed.Bed, namespace string, size int) *crowd {
	t.Helper()
	c := &crowd{t: t, cfg: newShardAccount(t, bed, namespace), namespace: namespace}
	t.Cleanup(func() {
		for _, m := range c.list() {
			if err := m.Leave(); err != nil {
				t.Errorf("Leave() = %v", err)
			}
		}
	})
	c.watch()
	for range size {
		c.join()
	}
	c.await()
	return c
}

// newShardAccount returns an account with exactly the permissions that package leases documents.
func newShardAccount(t *testing.T, bed *kubebed.Bed, namespace string) *rest.Config {
	t.Helper()
	admin, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "sharding"}
	_, err = admin.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"list", "watch", "create", "update", "delete"},
	}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "sharding"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: meta.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg, err := bed.EnsureServiceAccountConfig(t.Context(), namespace, meta.Name)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func (c *crowd) join() {
	c.t.Helper()
	l, err := shard.NewKubeLeases(c.cfg, c.namespace, "fleet")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(l.Close)
	c.mu.Lock()
	defer c.mu.Unlock()
	identity := fmt.Sprint("sentinel-", c.made)
	c.made++
	log := slog.New(slog.NewTextHandler(c.t.Output(), nil)).With("member", identity)
	m, err := startShardMember(c.t.Context(), shard.GroupConfig{Name: "fleet", Identity: identity}, shard.Deps{Leases: l, Log: log})
	if err != nil {
		c.t.Fatal(err)
	}
	c.members = append(c.members, m)
}

func (c *crowd) list() []*shardMember {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*shardMember(nil), c.members...)
}

func (c *crowd) kill(m *shardMember) {
	c.t.Helper()
	m.Kill()
	c.remove(m)
	c.t.Cleanup(func() {
		if err := m.WaitUntilEnded(); err != nil {
			c.t.Errorf("Run() = %v", err)
		}
	})
}

// remove removes a member that has left, or was killed.
func (c *crowd) remove(m *shardMember) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.members {
		if other == m {
			c.members = append(c.members[:i:i], c.members[i+1:]...)
			return
		}
	}
}

// watch makes members acquire all ids repeatedly until the test ends.
func (c *crowd) watch() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		ids := listShardIDs()
		for i := 0; ctx.Err() == nil; i++ {
			<-ticker.C
			if id := ids[i%len(ids)]; c.twice(id) {
				c.t.Errorf("%q was acquired by two members at a time", id)
				return
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// twice reports whether two members acquire an id, and the first one still owns it then.
func (c *crowd) twice(id []byte) bool {
	var first *shardMember
	for _, m := range c.list() {
		release, ok := m.Acquire(id)
		defer release()
		switch {
		case !ok:
		case first != nil && first.Owns(id):
			return true
		default:
			first = m
		}
	}
	return false
}

// await waits until all ids have owners, and every member knows every other.
func (c *crowd) await() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), crowdPatience)
	defer cancel()
	members := c.list()
	eventuallyOwned(c.t, func() error {
		for _, m := range members {
			if known := m.Members(); len(known) != len(members) {
				return errors.Join(fmt.Errorf("a member knows of %v, want %d", known, len(members)), m.Ready())
			}
		}
		return nil
	})
	if err := awaitOwnedOnce(ctx, members, listShardIDs()); err != nil {
		c.t.Fatal(err)
	}
}

func eventuallyOwned(t *testing.T, cond func() error) {
	t.Helper()
	bound := time.NewTimer(crowdPatience)
	defer bound.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := cond()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-bound.C:
			t.Fatal(err)
		}
	}
}

func TestShardMemberIsKilled(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, kubebedtest.Bed(t), kubebedtest.Namespace(t), 3)
	c.kill(c.list()[1])
	c.await()
}

func TestShardMembersLeaveAndJoin(t *testing.T) {
	t.Parallel()
	bed := kubebedtest.Bed(t)
	c := newCrowd(t, bed, kubebedtest.Namespace(t), 2)
	c.join()
	c.await()
	table, err := bed.Kubectl(t.Context(), "get", "leases", "-n", c.namespace, "-l", "fleetloop.io/shard-group=fleet")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 4 || !strings.Contains(lines[1], "fleet-sentinel-0-") ||
		len(strings.Fields(lines[1])) != 3 || strings.Fields(lines[1])[1] != "sentinel-0" {
		t.Errorf("kubectl get leases shows\n%s\nwant the three members, by the names of their holders", table)
	}

	leaver := c.list()[0]
	if err := leaver.Leave(); err != nil {
		t.Errorf("Leave() = %v", err)
	}
	c.remove(leaver)
	c.await()
	eventuallyOwned(t, func() error {
		table, err := bed.Kubectl(t.Context(), "get", "leases", "-n", c.namespace, "-o", "name")
		if err == nil && len(strings.Fields(table)) != 2 {
			err = fmt.Errorf("there are the leases %s, want two", table)
		}
		return err
	})
}

// TestShardMembersWithoutTheAPIServer has a separate control plane, because it stops the API server.
func TestShardMembersWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	bed, err := kubebed.Start(t.Context(), kubebed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Errorf("Stop() = %v", err)
		}
	})
	c := newCrowd(t, bed, metav1.NamespaceDefault, 3)
	if err := bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	eventuallyOwned(t, func() error {
		for _, m := range c.list() {
			for _, id := range listShardIDs() {
				if m.Owns(id) {
					return fmt.Errorf("%q is owned, and there is no API server", id)
				}
			}
			if m.Ready() == nil {
				return fmt.Errorf("a member is ready, and there is no API server")
			}
		}
		return nil
	})
	// For longer than any lease.
	away := time.NewTimer(5 * time.Second)
	defer away.Stop()
	select {
	case <-away.C:
	case <-t.Context().Done():
	}
	if err := bed.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.await()
}
