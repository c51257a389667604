package allinone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// The target objects and the users in the embedded host cluster.
const (
	shop        = "shop"                // a namespace of production
	web         = "web"                 // a Deployment in it
	credentials = "web-credentials"     // a Secret in it
	newSecret   = credentials + "-next" // a Secret beside the executions, with the next content
	requester   = "alice"
	approver    = "bob"

	runnerImage = "fleetloop/action-runner"
	webImage    = "fleetloop/web"
)

// setUpExecutions installs the objects that executions need, and builds the controller and the node
// that runs its Jobs.
func (h *hostCluster) setUpExecutions(
	ctx context.Context,
	p *process.Process,
	database settings.Secret,
	sinks *changes.Sinks,
) ([]lifecycle.Part, error) {
	cfg := executionapp.OverriddenDefaults().Part
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		return nil, err
	}
	cfg.Namespace = guard.DefaultNamespace
	cfg.Elect = false
	cfg.Runner.Image = runnerImage
	cfg.Runner.OnTargetNode = true          // the only node
	cfg.Guard.Propagation = 3 * time.Second // the only API server is already available
	cfg.Database.URL = database

	// The objects, in the order in which they need each other. The two actions without default rights get the rights of the example in
	// deploy/rbac.
	err := executionapp.ApplyRequiredObjects(ctx, h.bed.Config(), cfg, executionapp.Targets{
		Namespaces: []string{shop}, Secrets: []string{credentials}, Manifests: []string{"configmaps", "apps/deployments"},
	})
	if err != nil {
		return nil, err
	}
	if err := h.bindRequesterAndApproverRoles(ctx, cfg.Namespace); err != nil {
		return nil, err
	}
	if h.kubeconfigs, err = h.writeUserKubeconfigs(requester, approver); err != nil {
		return nil, err
	}
	if err := errors.Join(h.setUpShop(ctx), h.ensureDemoSecrets(ctx, cfg.Namespace)); err != nil {
		return nil, err
	}

	// The node and the controller.
	node, err := h.newProcessNode(ctx, p.Log)
	if err != nil {
		return nil, err
	}
	host, err := h.serviceAccountConfig(cfg.Namespace, roles.ControllerAccount)
	if err != nil {
		return nil, err
	}
	host.QPS = float32(cfg.Kube.QPS)
	host.Burst = cfg.Kube.Burst
	parts, err := executionapp.BuildParts(ctx, p, cfg, executionapp.Overrides{Host: host, Sinks: sinks})
	if err != nil {
		return nil, err
	}
	return append([]lifecycle.Part{{Name: "process node", Run: node.Run, Ready: node.Ready}}, parts...), nil
}

// newProcessNode returns a node that runs Pods as processes of this program.
func (h *hostCluster) newProcessNode(ctx context.Context, log *slog.Logger) (*processnode.Node, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find path of this executable: %w", err)
	}
	nodeLog := slog.New(slog.DiscardHandler) // its lines help only to find faults of the node
	if log.Enabled(ctx, slog.LevelDebug) {
		nodeLog = log
	}
	return processnode.New(h.bed.Config(), processnode.Options{
		Images: map[string][]string{
			runnerImage: {self, RunnerCommand},
			webImage:    {self, WebCommand},
		},
		Log: nodeLog,
	})
}

// bindRequesterAndApproverRoles gives the requester and the approver their rights in the namespace of executions.
func (h *hostCluster) bindRequesterAndApproverRoles(ctx context.Context, namespace string) error {
	for _, role := range roles.RequesterClusterRolesUpToRisk() {
		if err := h.bindClusterRole(ctx, namespace, role.Name, requester); err != nil {
			return err
		}
	}
	return h.bindClusterRole(ctx, namespace, roles.ApproverClusterRole().Name, approver)
}

func (h *hostCluster) bindClusterRole(ctx context.Context, namespace, role, user string) error {
	return h.createIfMissing(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role, Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

func (h *hostCluster) writeUserKubeconfigs(users ...string) (map[string]string, error) {
	paths := map[string]string{}
	for _, user := range users {
		path, err := h.bed.WriteUserKubeconfig(user)
		if err != nil {
			return nil, err
		}
		paths[user] = path
	}
	return paths, nil
}

// serviceAccountConfig returns the connection of a service account. It has a certificate, because a token would
// expire.
func (h *hostCluster) serviceAccountConfig(namespace, account string) (*rest.Config, error) {
	user := "system:serviceaccount:" + namespace + ":" + account
	return h.bed.User(user, "system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
}

// setUpShop creates what the example actions change: a Deployment in a namespace that is labelled as production.
func (h *hostCluster) setUpShop(ctx context.Context) error {
	if err := h.labelShopAsProduction(ctx); err != nil {
		return err
	}
	return h.createWebDeployment(ctx)
}

func (h *hostCluster) labelShopAsProduction(ctx context.Context) error {
	ns := &corev1.Namespace{}
	if err := h.objs.Get(ctx, client.ObjectKey{Name: shop}, ns); err != nil {
		return fmt.Errorf("get namespace %q: %w", shop, err)
	}
	labelled := ns.DeepCopy()
	if labelled.Labels == nil {
		labelled.Labels = map[string]string{}
	}
	labelled.Labels["environment"] = "production"
	if err := h.objs.Patch(ctx, labelled, client.MergeFrom(ns)); err != nil {
		return fmt.Errorf("label namespace %q: %w", shop, err)
	}
	return nil
}

func (h *hostCluster) createWebDeployment(ctx context.Context) error {
	labels := map[string]string{"app": web}
	replicas := int32(3)
	return h.createIfMissing(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: web, Namespace: shop, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: web, Image: webImage}}},
			},
		},
	})
}

// ensureDemoSecrets creates a Secret, and a second one beside the executions with its next content.
func (h *hostCluster) ensureDemoSecrets(ctx context.Context, namespace string) error {
	return errors.Join(
		h.createIfMissing(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: credentials, Namespace: shop},
			Data:       map[string][]byte{"password": []byte("old")},
		}),
		h.createIfMissing(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: newSecret, Namespace: namespace,
				Labels: map[string]string{action.LabelSecretSource: "true"},
			},
			Data: map[string][]byte{"password": []byte("new")},
		}),
	)
}

// createIfMissing creates an object unless it exists.
func (h *hostCluster) createIfMissing(ctx context.Context, o client.Object) error {
	if err := h.objs.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %T %q: %w", o, o.GetName(), err)
	}
	return nil
}

// exampleExecutionCommands returns example commands for executions. kubeconfigFlag returns the command prefix of a user
// by name.
func (h *hostCluster) exampleExecutionCommands(kubeconfigFlag func(name string) string) []string {
	scaleWeb := "fleetloop exec scale_deployment deployment=" + web + " namespace=" + shop + " replicas=5 --name scale-web "
	return []string{
		scaleWeb + kubeconfigFlag(requester),
		"fleetloop approve scale-web " + kubeconfigFlag(approver),
		"fleetloop exec describe scale-web " + kubeconfigFlag(requester),
		"fleetloop rollback scale-web " + kubeconfigFlag(requester),
	}
}
