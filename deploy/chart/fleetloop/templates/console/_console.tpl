{{/* The base path of publicURL, without a slash at its end; empty at the root. */}}
{{- define "fleetloop.console.path" -}}
{{- (urlParse .Values.console.publicURL).path | trimAll "/" | printf "/%s" | trimSuffix "/" -}}
{{- end -}}

{{/* Where the console finds the fleet API; it fails where that is nowhere. */}}
{{- define "fleetloop.console.apiURL" -}}
{{- $url := default (include "fleetloop.fleetApi.url" .) .Values.console.api.url -}}
{{- if not $url -}}
{{- fail "console.api.url is empty: set it to the URL of the fleet API, or set fleetApi.enabled=true" -}}
{{- end -}}
{{- $url -}}
{{- end -}}

{{/* "true" if the console shows the cluster that it runs in. */}}
{{- define "fleetloop.console.isHost" -}}
{{- range .Values.console.hosts -}}
{{- if not .kubeconfigSecretRef -}}
true
{{- break -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The configuration file: host clusters, and what else the user sets. */}}
{{- define "fleetloop.console.config" -}}
{{- $hosts := list -}}
{{- range $host := .Values.console.hosts -}}
{{- $one := dict "name" $host.name -}}
{{- with $host.kubeconfigSecretRef -}}
{{- $_ := set $one "kubeconfig" (printf "/etc/console/hosts/%s/%s" $host.name .key) -}}
{{- else -}}
{{- $_ := set $one "execution_namespace" $.Values.executionController.namespace -}}
{{- end -}}
{{- with $host.auditDatabaseSecretRef -}}
{{- $_ := set $one "audit_database_url_file" (printf "/etc/console/audit/%s/%s" $host.name .key) -}}
{{- end -}}
{{- range $key, $value := dict "execution_namespace" $host.executionNamespace "assume_users" $host.assumeUsers "user_prefix" $host.userPrefix -}}
{{- if $value -}}
{{- $_ := set $one $key $value -}}
{{- end -}}
{{- end -}}
{{- $hosts = append $hosts $one -}}
{{- end -}}
{{- $config := deepCopy .Values.console.config -}}
{{- with $hosts -}}
{{- $_ := set $config "hosts" . -}}
{{- end -}}
{{- include "fleetloop.changeEvents.config" (dict "root" . "config" $config) -}}
{{- end -}}

{{- define "fleetloop.console.env" -}}
{{- $values := .Values.console -}}
{{- $oidc := $values.auth.oidc -}}
- name: CONSOLE_PUBLIC_URL
  value: {{ $values.publicURL | quote }}
- name: CONSOLE_AUTH_MODE
  value: {{ $values.auth.mode }}
- name: FLEET_API_URL
  value: {{ include "fleetloop.console.apiURL" . }}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ $values.database.existingSecret }}
      key: {{ $values.database.key }}
- name: CONSOLE_SESSION_KEY
  valueFrom:
    secretKeyRef:
      name: {{ $values.sessionKey.existingSecret }}
      key: {{ $values.sessionKey.key }}
{{- if eq $values.auth.mode "oidc" }}
- name: CONSOLE_OIDC_ISSUER
  value: {{ $oidc.issuer | quote }}
- name: CONSOLE_OIDC_CLIENT_ID
  value: {{ $oidc.clientID | quote }}
{{- with $oidc.clientSecretRef }}
{{- if .name }}
- name: CONSOLE_OIDC_CLIENT_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ .name }}
      key: {{ .key }}
{{- end }}
{{- end }}
{{- with $oidc.scopes }}
- name: CONSOLE_OIDC_SCOPES
  value: {{ join "," . | quote }}
{{- end }}
- name: CONSOLE_OIDC_TOKEN
  value: {{ $oidc.token }}
{{- end }}
{{- end -}}

{{/* volumes and volumeMounts, as a dict. */}}
{{- define "fleetloop.console.files" -}}
{{- $values := .Values.console -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- range $values.hosts -}}
{{- if .kubeconfigSecretRef -}}
{{- $volumes = append $volumes (dict "name" (printf "host-%s" .name) "secret" (dict "secretName" .kubeconfigSecretRef.name)) -}}
{{- $mounts = append $mounts (dict "name" (printf "host-%s" .name) "mountPath" (printf "/etc/console/hosts/%s" .name) "readOnly" true) -}}
{{- end -}}
{{- if .auditDatabaseSecretRef -}}
{{- $volumes = append $volumes (dict "name" (printf "audit-%s" .name) "secret" (dict "secretName" .auditDatabaseSecretRef.name)) -}}
{{- $mounts = append $mounts (dict "name" (printf "audit-%s" .name) "mountPath" (printf "/etc/console/audit/%s" .name) "readOnly" true) -}}
{{- end -}}
{{- end -}}
{{- with $values.tls.existingSecret -}}
{{- $volumes = append $volumes (dict "name" "tls" "secret" (dict "secretName" .)) -}}
{{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/console/tls" "readOnly" true) -}}
{{- end -}}
{{- if include "fleetloop.console.config" . -}}
{{- $volumes = append $volumes (dict "name" "config" "configMap" (dict "name" (printf "%s-console" (include "fleetloop.fullname" .)))) -}}
{{- $mounts = append $mounts (dict "name" "config" "mountPath" "/etc/console/config" "readOnly" true) -}}
{{- end -}}
{{- $volumes = concat $volumes (include "fleetloop.changeEvents.volumes" . | fromYamlArray) $values.extraVolumes -}}
{{- $mounts = concat $mounts (include "fleetloop.changeEvents.mounts" . | fromYamlArray) $values.extraVolumeMounts -}}
{{- dict "volumes" $volumes "mounts" $mounts | toYaml -}}
{{- end -}}
