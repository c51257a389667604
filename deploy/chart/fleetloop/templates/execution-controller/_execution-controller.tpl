{{/* The dict of the component. All of it is in the namespace of the executions. */}}
{{- define "fleetloop.executionController" -}}
component: execution-controller
namespace: {{ .Values.executionController.namespace }}
{{- end -}}

{{/* Who the controller is for the Kubernetes API. */}}
{{- define "fleetloop.executionController.user" -}}
{{- printf "system:serviceaccount:%s:%s" .Values.executionController.namespace .Values.executionController.serviceAccount.name -}}
{{- end -}}

{{/* "true" where names are filled in. */}}
{{- define "fleetloop.executionController.mutating" -}}
{{- $admission := .Values.executionController.admissionPolicies -}}
{{- if not $admission.enabled -}}
{{- else if eq (toString $admission.mutating) "true" -}}
true
{{- else if and (eq (toString $admission.mutating) "auto") (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") -}}
true
{{- end -}}
{{- end -}}

{{/* Objects of a file in files/execution, for this installation, as a YAML list.
The files are written from the packages that say what executions need; capitals
in them stand for what an installation chooses. It takes root and file. */}}
{{- define "fleetloop.executionController.objects" -}}
{{- $values := .root.Values.executionController -}}
{{- $admission := $values.admissionPolicies -}}
{{- $trusted := list -}}
{{- range $admission.trustedRequesters | uniq | sortAlpha -}}
{{- $trusted = append $trusted (printf "\\\"%s\\\"" .) -}}
{{- end -}}
{{- $settings := list -}}
{{- range list $values.policies.name "emergency-stop" | uniq | sortAlpha -}}
{{- $settings = append $settings (printf "\\\"%s\\\"" .) -}}
{{- end -}}
{{- $text := .root.Files.Get (printf "files/execution/%s.json" .file) -}}
{{- $text = $text | replace "[\\\"POLICY_CONFIG_MAP\\\", \\\"emergency-stop\\\"]" (printf "[%s]" (join ", " $settings)) -}}
{{- $text = $text | replace "[\\\"TRUSTED_REQUESTERS\\\"]" (printf "[%s]" (join ", " $trusted)) -}}
{{- if $admission.policyAdmins -}}
{{- $text = $text | replace "POLICY_ADMINS" $admission.policyAdmins -}}
{{- else -}}
{{- $text = $text | replace " || \\\"POLICY_ADMINS\\\" in request.userInfo.?groups.orValue([])" "" -}}
{{- end -}}
{{- $text = $text | replace "CONTROLLER_USER" (include "fleetloop.executionController.user" .root) -}}
{{- $text = $text | replace "CONTROLLER_ACCOUNT" $values.serviceAccount.name -}}
{{- $text = $text | replace "EXECUTOR_NAMESPACE" $values.namespace -}}
{{- $text | fromJsonArray | toYaml -}}
{{- end -}}

{{/* An object of those, with the labels of the chart. It takes root and object. */}}
{{- define "fleetloop.executionController.object" -}}
{{- $object := deepCopy .object -}}
{{- $own := $object.metadata -}}
{{- $metadata := include "fleetloop.metadata" (dict "root" .root "component" "execution-controller" "name" $own.name "namespace" $own.namespace "labels" $own.labels "annotations" .annotations) | fromYaml -}}
{{- if not $own.namespace -}}
{{- $_ := unset $metadata "namespace" -}}
{{- end -}}
{{- $_ := set $object "metadata" $metadata -}}
---
{{ toYaml $object }}
{{- end -}}

{{/* The configuration file; empty is none. */}}
{{- define "fleetloop.executionController.config" -}}
{{- $values := .Values.executionController -}}
{{- $config := deepCopy $values.config -}}
{{- $runner := get $config "runner" | default dict -}}
{{- range $key, $value := dict
      "node_selector" $values.runner.nodeSelector
      "tolerations" $values.runner.tolerations
      "resources" $values.runner.resources
      "action_resources" $values.runner.actionResources -}}
{{- if $value -}}
{{- $_ := set $runner $key $value -}}
{{- end -}}
{{- end -}}
{{- if $runner -}}
{{- $_ := set $config "runner" $runner -}}
{{- end -}}
{{- include "fleetloop.changeEvents.config" (dict "root" . "config" $config) -}}
{{- end -}}

{{- define "fleetloop.executionController.env" -}}
{{- $values := .Values.executionController -}}
{{- $runner := dict "root" . "values" $values.runner -}}
{{- if eq $values.audit.mode "postgres" }}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ $values.database.existingSecret }}
      key: {{ $values.database.key }}
{{- end }}
- name: AUDIT
  value: {{ $values.audit.mode | quote }}
- name: EXECUTOR_NAMESPACE
  value: {{ $values.namespace }}
- name: CLUSTER_NAME
  value: {{ $values.clusterName | quote }}
{{- if .Values.global.dryRun }}
- name: DRY_RUN
  value: "true"
{{- end }}
- name: RUNNER_IMAGE
  value: {{ include "fleetloop.image" $runner }}
- name: RUNNER_PULL_POLICY
  value: {{ $values.runner.image.pullPolicy }}
- name: EXECUTION_MODE
  value: {{ $values.runner.mode }}
- name: POLICY_CONFIG_MAP
  value: {{ $values.policies.name }}
- name: POLICY_MODE
  value: {{ $values.policies.mode }}
- name: CONTROLLER_USER
  value: {{ include "fleetloop.executionController.user" . }}
{{- $pullSecrets := list -}}
{{- range .Values.global.imagePullSecrets -}}
{{- $pullSecrets = append $pullSecrets .name -}}
{{- end }}
{{- range $name, $value := dict
      "RUNNER_PULL_SECRETS" (join "," $pullSecrets)
      "RUNNER_PRIORITY_CLASS" $values.runner.priorityClassName
      "INLINE_ACTIONS" (join "," $values.runner.inlineActions)
      "PROTECTED_NAMESPACES" (join "," $values.protectedNamespaces)
      "POLICY_ADMINS" $values.admissionPolicies.policyAdmins
      "TRUSTED_REQUESTERS" (join "," $values.admissionPolicies.trustedRequesters) }}
{{- with $value }}
- name: {{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}
