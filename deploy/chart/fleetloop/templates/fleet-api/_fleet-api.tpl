{{- define "fleetloop.fleetApi.serviceName" -}}
{{- default (printf "%s-fleet-api" (include "fleetloop.fullname" .)) .Values.fleetApi.service.name -}}
{{- end -}}

{{/* Where this release's sentinels find its fleet API; empty where it has none. */}}
{{- define "fleetloop.fleetApi.url" -}}
{{- if .Values.fleetApi.enabled -}}
{{- printf "%s://%s:%d" (ternary "https" "http" (ne .Values.fleetApi.tls.existingSecret "")) (include "fleetloop.fleetApi.serviceName" .) (int .Values.fleetApi.service.port) -}}
{{- end -}}
{{- end -}}

{{- define "fleetloop.fleetApi.databaseEnv" -}}
{{- $database := .values.database -}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ $database.existingSecret }}
      key: {{ $database.key }}
{{- if and $database.migrationKey (or .migrates (eq $database.migrate "start")) }}
- name: DATABASE_MIGRATION_URL
  valueFrom:
    secretKeyRef:
      name: {{ $database.existingSecret }}
      key: {{ $database.migrationKey }}
{{- end }}
{{- if and $database.readKey (not .migrates) }}
- name: DATABASE_READ_URL
  valueFrom:
    secretKeyRef:
      name: {{ $database.existingSecret }}
      key: {{ $database.readKey }}
{{- end }}
{{- end -}}

{{- define "fleetloop.fleetApi.mounts" -}}
{{- $values := .Values.fleetApi -}}
{{- $mounts := list -}}
{{- if $values.auth.tokensSecret }}
{{- $mounts = append $mounts (dict "name" "tokens" "mountPath" "/etc/fleet-api/tokens" "readOnly" true) }}
{{- end }}
{{- if $values.tls.existingSecret }}
{{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/fleet-api/tls" "readOnly" true) }}
{{- end }}
{{- if $values.config }}
{{- $mounts = append $mounts (dict "name" "config" "mountPath" "/etc/fleet-api/config" "readOnly" true) }}
{{- end }}
{{- with concat $mounts $values.extraVolumeMounts }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{- define "fleetloop.fleetApi.volumes" -}}
{{- $values := .Values.fleetApi -}}
{{- $volumes := list -}}
{{- with $values.auth.tokensSecret }}
{{- $volumes = append $volumes (dict "name" "tokens" "secret" (dict "secretName" .)) }}
{{- end }}
{{- with $values.tls.existingSecret }}
{{- $volumes = append $volumes (dict "name" "tls" "secret" (dict "secretName" .)) }}
{{- end }}
{{- if $values.config }}
{{- $volumes = append $volumes (dict "name" "config" "configMap" (dict "name" (printf "%s-fleet-api" (include "fleetloop.fullname" .)))) }}
{{- end }}
{{- with concat $volumes $values.extraVolumes }}
{{- toYaml . }}
{{- end }}
{{- end -}}
