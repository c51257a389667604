{{/* The spec of a SentinelConfig: the defaults, and the config's own over them.
It takes root and config. */}}
{{- define "fleetloop.sentinel.spec" -}}
{{- $spec := mergeOverwrite (deepCopy .root.Values.sentinel.defaults) (deepCopy .config.spec) -}}
{{- if not (dig "hyperfleetAPI" "url" "" $spec) -}}
{{- $url := include "fleetloop.fleetApi.url" .root -}}
{{- if not $url -}}
{{- fail (printf "sentinel.configs %q has no fleet API URL: set sentinel.defaults.hyperfleetAPI.url, or fleetApi.enabled=true" .config.name) -}}
{{- end -}}
{{- $_ := set $spec "hyperfleetAPI" (merge (dict "url" $url) (default dict $spec.hyperfleetAPI)) -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end -}}

{{/* The content of a configuration file. It takes root and file. */}}
{{- define "fleetloop.sentinel.file" -}}
{{- $config := deepCopy .file.config -}}
{{- if not (dig "hyperfleet_api" "endpoint" "" $config) -}}
{{- $url := include "fleetloop.fleetApi.url" .root -}}
{{- if not $url -}}
{{- fail (printf "sentinel.files %q has no fleet API URL: set config.hyperfleet_api.endpoint, or fleetApi.enabled=true" .file.name) -}}
{{- end -}}
{{- $_ := set $config "hyperfleet_api" (merge (dict "endpoint" $url) (default dict $config.hyperfleet_api)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* "true" where replicas divide resources among themselves. */}}
{{- define "fleetloop.sentinel.shards" -}}
{{- if eq .Values.sentinel.rbac.sharding "always" -}}
true
{{- else -}}
{{- range .Values.sentinel.configs -}}
{{- $spec := include "fleetloop.sentinel.spec" (dict "root" $ "config" .) | fromYaml -}}
{{- if eq (dig "sharding" "mode" "" $spec) "auto" }}true{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secrets that the SentinelConfigs name, as a YAML list. It takes root and
path, the fields that lead to a reference, as a list. */}}
{{- define "fleetloop.sentinel.named" -}}
{{- $names := list -}}
{{- $path := .path -}}
{{- $root := .root -}}
{{- range .root.Values.sentinel.configs -}}
{{- $spec := include "fleetloop.sentinel.spec" (dict "root" $root "config" .) | fromYaml -}}
{{- $names = append $names (dig (index $path 0) (index $path 1) "name" "" $spec) -}}
{{- end -}}
{{- toYaml (compact $names | uniq | sortAlpha) -}}
{{- end -}}

{{/* All Secrets that the sentinel may read, as a YAML list. */}}
{{- define "fleetloop.sentinel.secretNames" -}}
{{- $tokens := include "fleetloop.sentinel.named" (dict "root" . "path" (list "hyperfleetAPI" "tokenSecretRef")) | fromYamlArray -}}
{{- $brokers := include "fleetloop.sentinel.named" (dict "root" . "path" (list "broker" "credentialsSecretRef")) | fromYamlArray -}}
{{- toYaml (concat .Values.sentinel.rbac.secretNames $tokens $brokers | uniq | sortAlpha) -}}
{{- end -}}

{{/* One sentinel. It takes root, values, component, name (of what it runs, ""
for all), replicas, labels, args, env, and own: what the entry of the list
says of its Deployment. */}}
{{- define "fleetloop.sentinel.deployment" -}}
{{- $values := .values -}}
{{- $own := default dict .own -}}
{{- $name := include "fleetloop.componentName" . -}}
{{- with .name }}{{ $name = printf "%s-%s" $name . | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- $selector := merge (include "fleetloop.selectorLabels" . | fromYaml) .selector -}}
{{- $resources := default $values.resources $own.resources -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "fleetloop.metadata" (dict "root" .root "component" .component "name" $name "annotations" $values.annotations "labels" (merge (deepCopy .selector) .labels)) | nindent 2 }}
spec:
  replicas: {{ .replicas }}
  {{- with $values.strategy }}
  strategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      {{- toYaml $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- toYaml (merge (deepCopy $selector) .labels $values.podLabels .root.Values.commonLabels) | nindent 8 }}
      {{- with merge (deepCopy $values.podAnnotations) (default dict .podAnnotations) }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      automountServiceAccountToken: {{ ne $values.deploymentMode "file" }}
      {{- include "fleetloop.podSpec" (dict "root" .root "component" .component "values" $values "selectorLabels" $selector "place" $own) | nindent 6 }}
      containers:
        - name: sentinel
          {{- include "fleetloop.container" . | nindent 10 }}
          command:
            - /sentinel
          args:
            {{- toYaml .args | nindent 12 }}
            - --metrics-bind-address=:8080
            - --health-probe-bind-address=:8081
          env:
            {{- include "fleetloop.env" (dict "values" $values "chart" (include "fleetloop.sentinel.env" . | fromYamlArray) "extra" $own.extraEnv "resources" $resources) | nindent 12 }}
          {{- with concat (default list .envFrom) $values.extraEnvFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - name: metrics
              containerPort: 8080
              protocol: TCP
            - name: health
              containerPort: 8081
              protocol: TCP
          {{- with $values.livenessProbe }}
          livenessProbe:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $values.readinessProbe }}
          readinessProbe:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- $mounts := list }}
          {{- $volumes := list }}
          {{- with .configMap }}
          {{- $mounts = append $mounts (dict "name" "config" "mountPath" "/etc/sentinel/config" "readOnly" true) }}
          {{- $volumes = append $volumes (dict "name" "config" "configMap" (dict "name" .)) }}
          {{- end }}
          {{- if and (eq $values.deploymentMode "file") $values.fileApi.tokenSecret }}
          {{- $mounts = append $mounts (dict "name" "api-token" "mountPath" "/etc/sentinel/api-token" "readOnly" true) }}
          {{- $volumes = append $volumes (dict "name" "api-token" "secret" (dict "secretName" $values.fileApi.tokenSecret)) }}
          {{- end }}
          {{- with $values.gcpCredentialsSecret }}
          {{- $mounts = append $mounts (dict "name" "gcp-credentials" "mountPath" "/var/secrets/google" "readOnly" true) }}
          {{- $volumes = append $volumes (dict "name" "gcp-credentials" "secret" (dict "secretName" .)) }}
          {{- end }}
          {{- with concat $mounts $values.extraVolumeMounts }}
          volumeMounts:
            {{- toYaml . | nindent 12 }}
          {{- end }}
      {{- with concat $volumes $values.extraVolumes }}
      volumes:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- if $values.podDisruptionBudget.enabled }}
---
{{ include "fleetloop.podDisruptionBudget" (dict "root" .root "component" .component "values" $values "name" $name "labels" .selector "selectorLabels" $selector) }}
{{- end }}
{{- end -}}

{{- define "fleetloop.sentinel.env" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- if ne .values.deploymentMode "file" }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- else if .values.fileApi.tokenSecret }}
- name: HYPERFLEET_API_TOKEN_FILE
  value: /etc/sentinel/api-token/token
{{- end }}
{{- if .values.gcpCredentialsSecret }}
- name: GOOGLE_APPLICATION_CREDENTIALS
  value: /var/secrets/google/key.json
{{- end }}
{{- end -}}
