package processnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodVolumes are the volumes of one pod. They are not safe for concurrent use.
type PodVolumes struct {
	source *InputSource
	dir    string
	tokens map[string]token
}

// NewVolumes returns the volumes of a pod below dir, a dedicated folder of the pod.
func (s *InputSource) NewVolumes(dir string) *PodVolumes {
	return &PodVolumes{source: s, dir: dir, tokens: map[string]token{}}
}

// A token is a requested service account token.
type token struct {
	text  string
	renew time.Time
}

// VolumeRefreshInterval is the interval at which Sync has to be called while a pod runs.
const VolumeRefreshInterval = 30 * time.Second

// Sync creates all volumes and updates those that are built from objects. It renews
// tokens when four fifths of their lifetime have passed.
func (v *PodVolumes) Sync(ctx context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if err := v.syncVolume(ctx, pod, volume); err != nil {
			return fmt.Errorf("volume %q: %w", volume.Name, err)
		}
	}
	return nil
}

func (v *PodVolumes) syncVolume(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) error {
	if volume.HostPath != nil {
		return ensureHostPath(volume.HostPath)
	}
	dir := filepath.Join(v.dir, volume.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as the kubelet makes it
		return err
	}
	if volume.EmptyDir != nil {
		return os.Chmod(dir, 0o777) //nolint:gosec // as the kubelet makes it
	}
	files, err := v.buildVolumeFiles(ctx, pod, volume)
	if err != nil {
		return err
	}
	return replaceFilesAtomically(dir, files)
}

func ensureHostPath(h *corev1.HostPathVolumeSource) error {
	if h.Type != nil && *h.Type == corev1.HostPathDirectoryOrCreate {
		return os.MkdirAll(h.Path, 0o755) //nolint:gosec // as the kubelet makes it
	}
	_, err := os.Stat(h.Path)
	return err
}

// ResolveOrCreatePath returns the real path of a mount's file or folder. env is the environment that
// expands a subPathExpr.
func (v *PodVolumes) ResolveOrCreatePath(pod *corev1.Pod, m *corev1.VolumeMount, env map[string]string) (string, error) {
	base := filepath.Join(v.dir, m.Name)
	empty := false
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.Name != m.Name {
			continue
		}
		empty = volume.EmptyDir != nil
		if volume.HostPath != nil {
			base = volume.HostPath.Path
		}
	}
	sub := m.SubPath
	if m.SubPathExpr != "" {
		sub = ExpandVariables(m.SubPathExpr, env)
	}
	if sub == "" {
		return base, nil
	}
	if !filepath.IsLocal(sub) {
		return "", fmt.Errorf("volume %q: subPath %q is outside the volume", m.Name, sub)
	}
	path := filepath.Join(base, sub)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && empty {
		if err := os.MkdirAll(path, 0o777); err != nil { //nolint:gosec // as the kubelet makes it
			return "", err
		}
	}
	return filepath.EvalSymlinks(path) // the current target: later updates do not affect it
}

// buildVolumeFiles returns the files of a volume that is built from objects.
func (v *PodVolumes) buildVolumeFiles(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (fileSet, error) {
	files := fileSet{}
	switch {
	case volume.ConfigMap != nil:
		c := volume.ConfigMap
		data, err := v.source.getConfigMap(ctx, pod.Namespace, c.Name)
		return files, files.addSelectedKeys(data, err, selection{c.Items, c.DefaultMode, isSetAndTrue(c.Optional)})
	case volume.Secret != nil:
		c := volume.Secret
		data, err := v.source.getSecret(ctx, pod.Namespace, c.SecretName)
		return files, files.addSelectedKeys(data, err, selection{c.Items, c.DefaultMode, isSetAndTrue(c.Optional)})
	case volume.DownwardAPI != nil:
		return files, v.addDownwardFields(files, pod, volume.DownwardAPI.Items, volume.DownwardAPI.DefaultMode)
	case volume.Projected != nil:
		for i := range volume.Projected.Sources {
			key := fmt.Sprintf("%s/%d", volume.Name, i)
			if err := v.addProjectedSource(ctx, files, pod, projection{key, &volume.Projected.Sources[i], volume.Projected.DefaultMode}); err != nil {
				return nil, err
			}
		}
		return files, nil
	}
	return nil, errors.New("unsupported volume type")
}

// A projection is one source of a projected volume.
type projection struct {
	key    string
	source *corev1.VolumeProjection
	mode   *int32
}

func (v *PodVolumes) addProjectedSource(ctx context.Context, files fileSet, pod *corev1.Pod, p projection) error {
	switch s := p.source; {
	case s.ConfigMap != nil:
		data, err := v.source.getConfigMap(ctx, pod.Namespace, s.ConfigMap.Name)
		return files.addSelectedKeys(data, err, selection{s.ConfigMap.Items, p.mode, isSetAndTrue(s.ConfigMap.Optional)})
	case s.Secret != nil:
		data, err := v.source.getSecret(ctx, pod.Namespace, s.Secret.Name)
		return files.addSelectedKeys(data, err, selection{s.Secret.Items, p.mode, isSetAndTrue(s.Secret.Optional)})
	case s.DownwardAPI != nil:
		return v.addDownwardFields(files, pod, s.DownwardAPI.Items, p.mode)
	case s.ServiceAccountToken != nil:
		text, err := v.cachedOrNewToken(ctx, pod, p.key, s.ServiceAccountToken)
		if err != nil {
			return err
		}
		return files.addOrReplaceFile(s.ServiceAccountToken.Path, []byte(text), p.mode)
	}
	return errors.New("unsupported volume source")
}

func (v *PodVolumes) addDownwardFields(files fileSet, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for i := range items {
		item := &items[i]
		var value string
		var err error
		if item.ResourceFieldRef != nil {
			value, err = v.source.resolveResourceField(pod, item.ResourceFieldRef.ContainerName, item.ResourceFieldRef)
		} else {
			value, err = resolvePodField(pod, item.FieldRef.FieldPath)
		}
		if err != nil {
			return err
		}
		if err := files.addOrReplaceFile(item.Path, []byte(value), firstNonNil(item.Mode, mode)); err != nil {
			return err
		}
	}
	return nil
}

// cachedOrNewToken returns a service account's token that is bound to the pod.
func (v *PodVolumes) cachedOrNewToken(
	ctx context.Context,
	pod *corev1.Pod,
	key string,
	p *corev1.ServiceAccountTokenProjection,
) (string, error) {
	now := time.Now()
	if t, ok := v.tokens[key]; ok && now.Before(t.renew) {
		return t.text, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	answer, err := v.source.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		if t, ok := v.tokens[key]; ok {
			return t.text, nil // still valid; the next round retries
		}
		return "", fmt.Errorf("request token of service account %q: %w", account, err)
	}
	life := answer.Status.ExpirationTimestamp.Sub(now)
	v.tokens[key] = token{answer.Status.Token, now.Add(life * 4 / 5)}
	return answer.Status.Token, nil
}

// A selection determines which keys become files.
type selection struct {
	items    []corev1.KeyToPath
	mode     *int32
	optional bool
}

// A fileSet has the content of a volume, by path.
type fileSet map[string]file

type file struct {
	data []byte
	mode os.FileMode
}

func (f fileSet) equalTo(o fileSet) bool {
	if len(f) != len(o) {
		return false
	}
	for path, a := range f {
		if b, ok := o[path]; !ok || a.mode != b.mode || !bytes.Equal(a.data, b.data) {
			return false
		}
	}
	return true
}

func (f fileSet) addOrReplaceFile(path string, data []byte, mode *int32) error {
	if !filepath.IsLocal(path) {
		return fmt.Errorf("path %q is outside the volume", path)
	}
	m := os.FileMode(0o644)
	if mode != nil {
		m = os.FileMode(*mode) & os.ModePerm //nolint:gosec // nine bits are kept
	}
	f[filepath.Clean(path)] = file{data, m}
	return nil
}

func (f fileSet) addSelectedKeys(data map[string][]byte, readErr error, s selection) error {
	if readErr != nil {
		if s.optional && apierrors.IsNotFound(readErr) {
			return nil
		}
		return readErr
	}
	if s.items == nil {
		for key, value := range data {
			if err := f.addOrReplaceFile(key, value, s.mode); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range s.items {
		value, ok := data[item.Key]
		if !ok {
			if s.optional {
				continue
			}
			return fmt.Errorf("key %q not found", item.Key)
		}
		if err := f.addOrReplaceFile(item.Path, value, firstNonNil(item.Mode, s.mode)); err != nil {
			return err
		}
	}
	return nil
}

func firstNonNil(a, b *int32) *int32 {
	if a != nil {
		return a
	}
	return b
}
