{{/* Where the worker reports to; it fails where that is nowhere. */}}
{{- define "fleetloop.clusterWorker.apiURL" -}}
{{- $url := default (include "fleetloop.fleetApi.url" .) .Values.clusterWorker.api.url -}}
{{- if not $url -}}
{{- fail "clusterWorker.api.url is empty: set it to the URL of the fleet API, or set fleetApi.enabled=true" -}}
{{- end -}}
{{- $url -}}
{{- end -}}

{{/* The adapters that every cluster of the fleet API waits for, as a YAML list;
empty where that is left to what the user configured. The fleet API requires
gardener of itself once a worker has started; the configuration agrees with it. */}}
{{- define "fleetloop.clusterWorker.requiredAdapters" -}}
{{- $name := "FLEET_API_REQUIRED_ADAPTERS_CLUSTERS" -}}
{{- if and .Values.clusterWorker.enabled .Values.clusterWorker.requireGardenerAdapter -}}
{{- $configured := dig "required_adapters" "clusters" (list "validation" "dns" "provisioning") .Values.fleetApi.config -}}
{{- $own := false -}}
{{- range .Values.fleetApi.extraEnv -}}
{{- if eq .name $name -}}
{{- $own = true -}}
{{- if and (hasKey . "value") (not (has "gardener" (splitList "," (nospace .value)))) -}}
{{- fail (printf "fleetApi.extraEnv sets %s to %q without gardener, which is required after the first start of the cluster-worker: add gardener to it, or set clusterWorker.requireGardenerAdapter=false" $name .value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (not $own) (not (has "gardener" $configured)) -}}
{{- toYaml (append $configured "gardener") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The configuration file; empty is none. */}}
{{- define "fleetloop.clusterWorker.config" -}}
{{- include "fleetloop.changeEvents.config" (dict "root" . "config" .Values.clusterWorker.config) -}}
{{- end -}}

{{- define "fleetloop.clusterWorker.env" -}}
{{- $values := .Values.clusterWorker -}}
{{- $gardener := $values.gardener -}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ $values.database.existingSecret }}
      key: {{ $values.database.key }}
- name: CLUSTER_WORKER_LISTEN
  value: {{ ternary "on" "off" $values.listen | quote }}
- name: GARDENER_MODE
  value: {{ $values.mode }}
{{- if eq $values.mode "real" }}
- name: GARDENER_KUBECONFIG
  value: /etc/cluster-worker/garden/{{ $values.kubeconfig.key }}
{{- end }}
{{- range $name, $value := dict
      "GARDENER_NAMESPACE" $gardener.namespace
      "GARDENER_PROVIDER_TYPE" $gardener.providerType
      "GARDENER_CLOUD_PROFILE" $gardener.cloudProfile
      "GARDENER_CREDENTIALS_BINDING_NAME" $gardener.credentialsBinding
      "GARDENER_REGION" $gardener.region
      "GARDENER_KUBERNETES_VERSION" $gardener.kubernetesVersion
      "GARDENER_MACHINE_TYPE" $gardener.machineType
      "GARDENER_MAX_SHOOT_NAME_LEN" (int $gardener.maxShootNameLength) }}
{{- with $value }}
- name: {{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
- name: HYPERFLEET_API_ENDPOINT
  value: {{ include "fleetloop.clusterWorker.apiURL" . }}
{{- if $values.api.tokenSecret }}
- name: HYPERFLEET_API_TOKEN_FILE
  value: /etc/cluster-worker/api-token/token
{{- end }}
{{- end -}}

{{- define "fleetloop.clusterWorker.mounts" -}}
{{- $values := .Values.clusterWorker -}}
{{- $mounts := list -}}
{{- if eq $values.mode "real" }}
{{- $mounts = append $mounts (dict "name" "garden" "mountPath" "/etc/cluster-worker/garden" "readOnly" true) }}
{{- end }}
{{- if $values.api.tokenSecret }}
{{- $mounts = append $mounts (dict "name" "api-token" "mountPath" "/etc/cluster-worker/api-token" "readOnly" true) }}
{{- end }}
{{- if include "fleetloop.clusterWorker.config" . }}
{{- $mounts = append $mounts (dict "name" "config" "mountPath" "/etc/cluster-worker/config" "readOnly" true) }}
{{- end }}
{{- with concat $mounts (include "fleetloop.changeEvents.mounts" . | fromYamlArray) $values.extraVolumeMounts }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{- define "fleetloop.clusterWorker.volumes" -}}
{{- $values := .Values.clusterWorker -}}
{{- $volumes := list -}}
{{- if eq $values.mode "real" }}
{{- $volumes = append $volumes (dict "name" "garden" "secret" (dict "secretName" $values.kubeconfig.existingSecret)) }}
{{- end }}
{{- with $values.api.tokenSecret }}
{{- $volumes = append $volumes (dict "name" "api-token" "secret" (dict "secretName" .)) }}
{{- end }}
{{- if include "fleetloop.clusterWorker.config" . }}
{{- $volumes = append $volumes (dict "name" "config" "configMap" (dict "name" (printf "%s-cluster-worker" (include "fleetloop.fullname" .)))) }}
{{- end }}
{{- with concat $volumes (include "fleetloop.changeEvents.volumes" . | fromYamlArray) $values.extraVolumes }}
{{- toYaml . }}
{{- end }}
{{- end -}}
