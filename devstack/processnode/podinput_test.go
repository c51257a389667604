package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const namespace = "here"

func newSource(objects ...runtime.Object) *InputSource {
	return &InputSource{
		Client: fake.NewClientset(objects...), Host: "127.0.0.1", Port: "6443", CA: []byte("authority"),
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")},
	}
}

func object(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func newPod(volumes ...corev1.Volume) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod", UID: "1", Labels: map[string]string{"b": "2", "a": "1"}},
		Spec: corev1.PodSpec{Volumes: volumes, ServiceAccountName: "account", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")},
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
			},
		}}},
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestExpand(t *testing.T) {
	t.Parallel()
	env := map[string]string{"A": "x", "B": "$(A)"}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "x", "a-$(A)-$(A)": "a-x-x", "$(C)": "$(C)", "$$(A)": "$(A)", "$$$(A)": "$x",
		"$(B)": "$(A)", "$": "$", "$A": "$A", "$(A": "$(A", "$(C) $(A)": "$(C) x",
	} {
		if got := ExpandVariables(text, env); got != want {
			t.Errorf("Expand(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	moves := []PathMove{{"/etc/app", "/p/app"}, {"/etc/app/deep", "/p/deep"}, {"/data", "/p/data"}}
	for text, want := range map[string]string{
		"--config=/etc/app/x.yaml":   "--config=/p/app/x.yaml",
		"/etc/app":                   "/p/app",
		"/etc/apple":                 "/etc/apple",
		"/etc/app-2/x":               "/etc/app-2/x",
		"/my/etc/app/x":              "/my/etc/app/x",
		"/etc/app/deep/x:/data":      "/p/deep/x:/p/data",
		"cat '/data/a' /data/b;true": "cat '/p/data/a' /p/data/b;true",
		"file:///data/x":             "file:///data/x",
	} {
		if got := RewritePaths(text, moves); got != want {
			t.Errorf("Rewrite(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	s := newSource(
		&corev1.ConfigMap{ObjectMeta: object("map"), Data: map[string]string{"KEY": "value"}},
		&corev1.Secret{ObjectMeta: object("secret"), Data: map[string][]byte{"KEY": []byte("hidden")}},
	)
	s.Env = []string{"BASE=node"}
	pod := newPod()
	c := &pod.Spec.Containers[0]
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	optional := new(true)
	c.EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("map")}},
		{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("secret")}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("absent"), Optional: optional}},
	}
	from := func(name string, source corev1.EnvVarSource) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &source}
	}
	c.Env = []corev1.EnvVar{
		from("UID", corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}),
		from("ABSENT", corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("secret"), Key: "no", Optional: optional}}),
		from("MEMORY", corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}),
		from("CPUS", corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}),
		from("MILLI", corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: resource.MustParse("1m")}}),
		from("ROUNDED", corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.cpu"}}),
		{Name: "BOTH", Value: "$(KEY) $(S_KEY) $(UID) $(LATER)"},
		{Name: "LATER", Value: "x"},
	}
	env, err := s.Environment(t.Context(), pod, c)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"PATH": env["PATH"], "HOSTNAME": "pod", "BASE": "node",
		"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443", "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
		"KEY": "value", "S_KEY": "hidden", "UID": "1", "MEMORY": "100", "CPUS": "16", "MILLI": "250", "ROUNDED": "1",
		"BOTH": "value hidden 1 $(LATER)", "LATER": "x",
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Error(diff)
	}

	for name, e := range map[string]corev1.EnvVar{
		"MissingSecret": from("X", corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("absent"), Key: "k"}}),
		"MissingKey":    from("X", corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("map"), Key: "k"}}),
		"UnknownField":  from("X", corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.priority"}}),
		"NoSource":      from("X", corev1.EnvVarSource{}),
	} {
		if _, err := s.Environment(t.Context(), pod, &corev1.Container{Name: "main", Env: []corev1.EnvVar{e}}); err == nil || !strings.Contains(err.Error(), `"X"`) {
			t.Errorf("%s: %v, want an error that names the variable", name, err)
		}
	}
}

func TestFilesChangeAsOne(t *testing.T) {
	t.Parallel()
	config := &corev1.ConfigMap{ObjectMeta: object("map"), Data: map[string]string{"one": "1", "two": "2"}}
	s := newSource(config)
	pod := newPod(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "map"}, DefaultMode: new(int32(0o400)),
	}}})
	dir := t.TempDir()
	v := s.NewVolumes(dir)
	if err := v.Sync(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "v")
	before, err := os.Readlink(filepath.Join(path, current))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(path, "one")); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("%v, %v, want a file of mode 0400", info, err)
	}
	if err := v.Sync(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.Readlink(filepath.Join(path, current)); after != before {
		t.Error("what had not changed was written anew")
	}

	config.Data = map[string]string{"one": "changed", "three": "3"}
	if _, err := s.Client.CoreV1().ConfigMaps(namespace).Update(t.Context(), config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := v.Sync(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if one, three := read(t, path, "one"), read(t, path, "three"); one != "changed" || three != "3" {
		t.Errorf("the files hold %q and %q", one, three)
	}
	if _, err := os.Lstat(filepath.Join(path, "two")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file whose key is gone: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(path, "..data-*")); len(left) != 1 {
		t.Errorf("folders of the volume: %q, want the current one alone", left)
	}
}

func TestProjectedVolume(t *testing.T) {
	t.Parallel()
	s := newSource(&corev1.Secret{ObjectMeta: object("secret"), Data: map[string][]byte{"a": []byte("A"), "b": []byte("B")}})
	pod := newPod(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Items: []corev1.KeyToPath{{Key: "a", Path: "deep/a"}}}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			{Path: "memory", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.memory"}},
		}}},
	}}}})
	dir := t.TempDir()
	if err := s.NewVolumes(dir).Sync(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"deep/a": "A", "ca.crt": "authority", "labels": "a=\"1\"\nb=\"2\"\n", "memory": "104857600",
	} {
		if got := read(t, dir, "v", path); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "v", "b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key that was not asked for: %v", err)
	}
}

func TestNoPathLeavesItsVolume(t *testing.T) {
	t.Parallel()
	s := newSource(&corev1.Secret{ObjectMeta: object("secret"), Data: map[string][]byte{"a": []byte("A")}})
	dir := t.TempDir()
	items := []corev1.KeyToPath{{Key: "a", Path: "../outside"}}
	pod := newPod(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret", Items: items}}})
	if err := s.NewVolumes(dir).Sync(t.Context(), pod); err == nil {
		t.Error("a file was written outside of its volume")
	}
	if _, err := s.NewVolumes(dir).ResolveOrCreatePath(pod, &corev1.VolumeMount{Name: "v", SubPath: "../.."}, nil); err == nil {
		t.Error("a mount shows what is outside of its volume")
	}
}

// tokens answers each token request with a new token.
func tokens(s *InputSource, life time.Duration, fail *bool) (requests *[]authenticationv1.TokenRequestSpec) {
	requests = &[]authenticationv1.TokenRequestSpec{}
	client, _ := s.Client.(*fake.Clientset)
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(clienttesting.CreateAction)
		if !ok || *fail {
			return true, nil, errors.New("the server is away")
		}
		request, _ := create.GetObject().(*authenticationv1.TokenRequest)
		*requests = append(*requests, request.Spec)
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: fmt.Sprint("token-", len(*requests)), ExpirationTimestamp: metav1.NewTime(time.Now().Add(life)),
		}}, nil
	})
	return requests
}

func TestTokensAreRenewed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const life = time.Hour
		s, fail := newSource(), false
		requests := tokens(s, life, &fail)
		pod := newPod(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3600)), Audience: "them"}},
		}}}})
		v := s.NewVolumes(dir)
		wantToken := func(want string) {
			t.Helper()
			if err := v.Sync(context.Background(), pod); err != nil { //nolint:usetesting // outlives nothing
				t.Fatal(err)
			}
			if got := read(t, dir, "v", "token"); got != want {
				t.Errorf("the token is %q, want %q", got, want)
			}
		}
		wantToken("token-1")
		time.Sleep(life * 3 / 4)
		wantToken("token-1")
		time.Sleep(life / 10)
		fail = true
		wantToken("token-1") // still valid
		fail = false
		wantToken("token-2")
		want := authenticationv1.TokenRequestSpec{
			Audiences: []string{"them"}, ExpirationSeconds: new(int64(3600)),
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "1"},
		}
		if diff := cmp.Diff(want, (*requests)[0]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		volume corev1.VolumeSource
		refuse bool
	}{
		"EmptyDir": {volume: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		"Claim":    {volume: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, refuse: true},
		"Projected": {volume: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}},
		}}}, refuse: true},
	} {
		if err := CheckVolumes(newPod(corev1.Volume{Name: "v", VolumeSource: c.volume})); (err != nil) != c.refuse {
			t.Errorf("%s: %v, want refused: %t", name, err, c.refuse)
		}
	}
}
