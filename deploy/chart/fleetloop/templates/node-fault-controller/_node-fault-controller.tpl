{{/* What runs: the controller, and the janitor beside it where it is separate,
as a YAML list of {component, roles}. */}}
{{- define "fleetloop.nodeFaults.processes" -}}
{{- $values := .Values.nodeFaultController -}}
{{- $roles := list "controller" -}}
{{- if $values.intake.enabled -}}
{{- $roles = append $roles "intake" -}}
{{- end -}}
{{- $list := list -}}
{{- if $values.enabled -}}
{{- if and $values.janitor.enabled (not $values.janitor.separate) -}}
{{- $roles = append $roles "janitor" -}}
{{- end -}}
{{- $list = append $list (dict "component" "node-fault-controller" "roles" $roles) -}}
{{- if and $values.janitor.enabled $values.janitor.separate -}}
{{- $list = append $list (dict "component" "node-janitor" "roles" (list "janitor")) -}}
{{- end -}}
{{- end -}}
{{- $list | toYaml -}}
{{- end -}}

{{/* The values of a process: the janitor has an account and a number of its own.
It takes root and component. */}}
{{- define "fleetloop.nodeFaults.values" -}}
{{- $values := deepCopy .root.Values.nodeFaultController -}}
{{- if eq .component "node-janitor" -}}
{{- $_ := set $values "serviceAccount" $values.janitor.serviceAccount -}}
{{- $_ := set $values "replicas" $values.janitor.replicas -}}
{{- end -}}
{{- $values | toYaml -}}
{{- end -}}

{{/* The features that a process needs rights for, as they are called in
files/node-faults/grants.json, as a YAML list. It takes root and roles. */}}
{{- define "fleetloop.nodeFaults.features" -}}
{{- $values := .root.Values.nodeFaultController -}}
{{- $features := list -}}
{{- if has "controller" .roles -}}
{{- $features = append $features "nodes" -}}
{{- if eq (dig "on_exhausted" "" $values.budget) "manual-reset" -}}
{{- $features = append $features "manual-reset" -}}
{{- end -}}
{{- $deletes := false -}}
{{- range dig "namespaces" list $values.drain -}}
{{- if or (not (has (toString (default "0s" .delete_after)) (list "0s" "0"))) (not (has (toString (default "0s" .force_delete_after)) (list "0s" "0"))) -}}
{{- $deletes = true -}}
{{- end -}}
{{- end -}}
{{- if $deletes -}}
{{- $features = append $features "deletion" -}}
{{- end -}}
{{- if dig "verification" "image" "" $values.remediation -}}
{{- $features = append $features "verification" -}}
{{- end -}}
{{- end -}}
{{- if has "intake" .roles -}}
{{- $features = append $features "intake" -}}
{{- if $values.intake.auth.cluster -}}
{{- $features = append $features "reviews" -}}
{{- end -}}
{{- end -}}
{{- if has "janitor" .roles -}}
{{- $janitor := $values.janitor -}}
{{- $features = append $features "janitor" -}}
{{- if ne $janitor.terminateProvider "none" -}}
{{- $features = append $features "termination" -}}
{{- end -}}
{{- if eq $janitor.rebootProvider "job" -}}
{{- $features = append $features "job" -}}
{{- end -}}
{{- if not $janitor.machines.kubeconfig.existingSecret -}}
{{- if eq $janitor.rebootProvider "machine" -}}
{{- $features = append $features "machine-reboot" -}}
{{- end -}}
{{- if eq $janitor.terminateProvider "machine" -}}
{{- $features = append $features "machine-termination" -}}
{{- end -}}
{{- end -}}
{{- if or (eq $janitor.rebootProvider "execution") (eq $janitor.terminateProvider "execution") -}}
{{- $features = append $features "execution" -}}
{{- end -}}
{{- end -}}
{{- $features | toYaml -}}
{{- end -}}

{{/* The actions that executions are asked for, as a YAML list. */}}
{{- define "fleetloop.nodeFaults.actions" -}}
{{- $janitor := .Values.nodeFaultController.janitor -}}
{{- $actions := list -}}
{{- range $what := list "reboot" "terminate" -}}
{{- if eq (get $janitor (printf "%sProvider" $what)) "execution" -}}
{{- with dig "execution" $what "action" "" $janitor.config -}}
{{- $actions = append $actions . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $actions | uniq | toYaml -}}
{{- end -}}

{{/* The configuration file. */}}
{{- define "fleetloop.nodeFaults.config" -}}
{{- $values := .Values.nodeFaultController -}}
{{- $config := deepCopy $values.config -}}
{{- range $key, $part := dict "rules" $values.rules "conditions" $values.conditions "quarantine" $values.quarantine "budget" $values.budget "drain" $values.drain "remediation" $values.remediation "janitor" $values.janitor.config -}}
{{- if $part -}}
{{- $_ := set $config $key $part -}}
{{- end -}}
{{- end -}}
{{- include "fleetloop.changeEvents.config" (dict "root" . "config" $config) -}}
{{- end -}}

{{/* It takes root and roles. */}}
{{- define "fleetloop.nodeFaults.env" -}}
{{- $values := .root.Values.nodeFaultController -}}
{{- $janitor := $values.janitor -}}
{{- $intake := $values.intake -}}
- name: ROLES
  value: {{ join "," .roles }}
- name: NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: CLUSTER_NAME
  value: {{ coalesce $values.clusterName .root.Values.global.changeEvents.clusterName "local" | quote }}
{{- if .root.Values.global.dryRun }}
- name: DRY_RUN
  value: "true"
{{- end }}
{{- if has "intake" .roles }}
- name: LISTEN_ADDRESS
  value: ":8080"
- name: NODE_FAULT_INTAKE_AUTH_MODE
  value: {{ ternary "cluster" "file" $intake.auth.cluster }}
{{- if $intake.auth.tokensSecret }}
- name: NODE_FAULT_INTAKE_TOKEN_FILE
  value: /etc/node-fault-controller/tokens/tokens.yaml
{{- end }}
{{- if $intake.tls.existingSecret }}
- name: TLS_CERT_FILE
  value: /etc/node-fault-controller/tls/tls.crt
- name: TLS_KEY_FILE
  value: /etc/node-fault-controller/tls/tls.key
{{- end }}
{{- if $intake.grpc.enabled }}
- name: NODE_FAULT_GRPC_ADDRESS
  value: ":8081"
{{- end }}
{{- end }}
{{- if has "janitor" .roles }}
- name: NODE_FAULT_REBOOT_PROVIDER
  value: {{ $janitor.rebootProvider }}
- name: NODE_FAULT_TERMINATE_PROVIDER
  value: {{ $janitor.terminateProvider }}
{{- if $janitor.webhook.tokenSecretRef.name }}
- name: NODE_ACTION_WEBHOOK_TOKEN_FILE
  value: /etc/node-fault-controller/webhook/{{ $janitor.webhook.tokenSecretRef.key }}
{{- end }}
{{- if $janitor.machines.kubeconfig.existingSecret }}
- name: NODE_ACTION_MACHINES_KUBECONFIG
  value: /etc/node-fault-controller/machines/{{ $janitor.machines.kubeconfig.key }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The Secrets that a process has as folders, as a YAML list of {name, secret}.
It takes root and roles. */}}
{{- define "fleetloop.nodeFaults.secrets" -}}
{{- $values := .root.Values.nodeFaultController -}}
{{- $list := list -}}
{{- if has "intake" .roles -}}
{{- with $values.intake.auth.tokensSecret -}}
{{- $list = append $list (dict "name" "tokens" "secret" .) -}}
{{- end -}}
{{- with $values.intake.tls.existingSecret -}}
{{- $list = append $list (dict "name" "tls" "secret" .) -}}
{{- end -}}
{{- end -}}
{{- if has "janitor" .roles -}}
{{- with $values.janitor.webhook.tokenSecretRef.name -}}
{{- $list = append $list (dict "name" "webhook" "secret" .) -}}
{{- end -}}
{{- with $values.janitor.machines.kubeconfig.existingSecret -}}
{{- $list = append $list (dict "name" "machines" "secret" .) -}}
{{- end -}}
{{- end -}}
{{- $list | toYaml -}}
{{- end -}}

{{/* volumes and volumeMounts of a process, as a dict. It takes root and roles. */}}
{{- define "fleetloop.nodeFaults.files" -}}
{{- $values := .root.Values.nodeFaultController -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- range include "fleetloop.nodeFaults.secrets" . | fromYamlArray -}}
{{- $volumes = append $volumes (dict "name" .name "secret" (dict "secretName" .secret)) -}}
{{- $mounts = append $mounts (dict "name" .name "mountPath" (printf "/etc/node-fault-controller/%s" .name) "readOnly" true) -}}
{{- end -}}
{{- if include "fleetloop.nodeFaults.config" .root -}}
{{- $volumes = append $volumes (dict "name" "config" "configMap" (dict "name" (printf "%s-node-fault-controller" (include "fleetloop.fullname" .root)))) -}}
{{- $mounts = append $mounts (dict "name" "config" "mountPath" "/etc/node-fault-controller/config" "readOnly" true) -}}
{{- end -}}
{{- $volumes = concat $volumes (include "fleetloop.changeEvents.volumes" .root | fromYamlArray) $values.extraVolumes -}}
{{- $mounts = concat $mounts (include "fleetloop.changeEvents.mounts" .root | fromYamlArray) $values.extraVolumeMounts -}}
{{- dict "volumes" $volumes "mounts" $mounts | toYaml -}}
{{- end -}}
