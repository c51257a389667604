package processnode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Environment returns the environment of a container. An error may be temporary: a
// referenced object is missing.
func (s *InputSource) Environment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (map[string]string, error) {
	env := map[string]string{
		"PATH":                          "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME":                      pod.Name,
		"KUBERNETES_SERVICE_HOST":       s.Host,
		"KUBERNETES_SERVICE_PORT":       s.Port,
		"KUBERNETES_SERVICE_PORT_HTTPS": s.Port,
	}
	for _, e := range s.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	for _, from := range c.EnvFrom {
		values, err := s.envFromValuesWithoutPrefix(ctx, pod.Namespace, from)
		if err != nil {
			return nil, err
		}
		for name, value := range values {
			env[from.Prefix+name] = value
		}
	}
	for i := range c.Env {
		e := &c.Env[i]
		value, ok, err := s.resolveEnvValueFrom(ctx, pod, c.Name, e)
		if err != nil {
			return nil, fmt.Errorf("variable %q: %w", e.Name, err)
		}
		if e.ValueFrom == nil {
			value = ExpandVariables(e.Value, env)
		}
		if ok {
			env[e.Name] = value
		}
	}
	return env, nil
}

// EnvironmentList returns an environment in the form that processes receive.
func EnvironmentList(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// resolveEnvValueFrom returns the value of a variable, or false if it refers to a missing optional
// object.
func (s *InputSource) resolveEnvValueFrom(
	ctx context.Context,
	pod *corev1.Pod,
	container string,
	e *corev1.EnvVar,
) (value string, set bool, err error) {
	from := e.ValueFrom

	switch {
	case from == nil:
		return "", true, nil
	case from.FieldRef != nil:
		value, err = resolvePodField(pod, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		value, err = s.resolveResourceField(pod, container, from.ResourceFieldRef)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, missing := s.getConfigMap(ctx, pod.Namespace, ref.Name)
		return findKeyValue(data, missing, ref.Key, isSetAndTrue(ref.Optional))
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, missing := s.getSecret(ctx, pod.Namespace, ref.Name)
		return findKeyValue(data, missing, ref.Key, isSetAndTrue(ref.Optional))
	default:
		err = fmt.Errorf("unsupported source: use fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef")
	}
	return value, err == nil, err
}

func findKeyValue(data map[string][]byte, readErr error, key string, optional bool) (text string, found bool, err error) {
	if readErr != nil {
		if optional && apierrors.IsNotFound(readErr) {
			return "", false, nil
		}
		return "", false, readErr
	}
	value, ok := data[key]
	if !ok && !optional {
		return "", false, fmt.Errorf("key %q not found", key)
	}
	return string(value), ok, nil
}

// envFromValuesWithoutPrefix returns all keys of a ConfigMap or Secret.
func (s *InputSource) envFromValuesWithoutPrefix(
	ctx context.Context,
	namespace string,
	from corev1.EnvFromSource,
) (map[string]string, error) {
	var data map[string][]byte
	var err error
	var optional bool
	switch {
	case from.ConfigMapRef != nil:
		optional = isSetAndTrue(from.ConfigMapRef.Optional)
		data, err = s.getConfigMap(ctx, namespace, from.ConfigMapRef.Name)
	case from.SecretRef != nil:
		optional = isSetAndTrue(from.SecretRef.Optional)
		data, err = s.getSecret(ctx, namespace, from.SecretRef.Name)
	}
	if err != nil && (!optional || !apierrors.IsNotFound(err)) {
		return nil, err
	}
	out := map[string]string{}
	for k, v := range data {
		out[k] = string(v)
	}
	return out, nil
}

func isSetAndTrue(b *bool) bool { return b != nil && *b }

func (s *InputSource) getConfigMap(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	m, err := s.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && name == rootCAConfigMap && len(s.CA) > 0 {
		return map[string][]byte{corev1.ServiceAccountRootCAKey: s.CA}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %q: %w", name, err)
	}
	data := map[string][]byte{}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, m.BinaryData)
	return data, nil
}

func (s *InputSource) getSecret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	o, err := s.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Secret %q: %w", name, err)
	}
	return o.Data, nil
}

// ExpandVariables replaces $(NAME) by the variable's value. An unset name stays unchanged, and
// $$ is a dollar sign.
func ExpandVariables(text string, env map[string]string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteString("$")
			text = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			value, set := env[name]
			if !closed || !set {
				b.WriteString("$(")
				text = rest[1:]
				continue
			}
			b.WriteString(value)
			text = after
		default:
			b.WriteString("$")
			text = rest
		}
	}
}
