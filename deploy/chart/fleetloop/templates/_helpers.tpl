{{/*
A component is a dict: root (the chart's scope), key (of its values: fleetApi),
component (in labels and names: fleet-api) and values. What all components have
in common is made from it here, so that another component is a folder of short
templates.
*/}}

{{- define "fleetloop.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name of a component's objects. */}}
{{- define "fleetloop.componentName" -}}
{{- printf "%s-%s" (include "fleetloop.fullname" .root) .component -}}
{{- end -}}

{{/* Labels that tell a component's pods; they never change. */}}
{{- define "fleetloop.selectorLabels" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* metadata of an object of a component: name, namespace, labels, annotations.
Beside the component's dict it takes name, namespace, labels and annotations. */}}
{{- define "fleetloop.metadata" -}}
name: {{ default (include "fleetloop.componentName" .) .name }}
namespace: {{ default .root.Release.Namespace .namespace }}
labels:
{{- $labels := merge (include "fleetloop.selectorLabels" . | fromYaml) (dict
      "app.kubernetes.io/part-of" "fleetloop"
      "app.kubernetes.io/version" .root.Chart.AppVersion
      "app.kubernetes.io/managed-by" .root.Release.Service
      "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")) }}
{{- range $labelSet := list .labels .root.Values.commonLabels }}
{{- $labels = merge $labels (default dict $labelSet) }}
{{- end }}
{{- toYaml $labels | nindent 2 }}
{{- with merge dict (default dict .annotations) .root.Values.commonAnnotations }}
annotations:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "fleetloop.image" -}}
{{- $image := .values.image -}}
{{- $repository := $image.repository -}}
{{- with .root.Values.global.imageRegistry }}{{ $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}{{ end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "fleetloop.serviceAccountName" -}}
{{- if .values.serviceAccount.create -}}
{{- default (include "fleetloop.componentName" .) .values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Nine tenths of the memory limit, so that the garbage collector works harder
before the container is killed; empty where the limit is not in Mi or Gi. reserved
is how many Mi of the limit other processes of the container take. */}}
{{- define "fleetloop.goMemLimit" -}}
{{- $limit := dig "limits" "memory" "" (default dict .resources) | toString -}}
{{- if .goMemLimit -}}
{{- .goMemLimit -}}
{{- else if regexMatch "^[0-9]+Mi$" $limit -}}
{{- printf "%dMiB" (div (mul (max 64 (sub (trimSuffix "Mi" $limit | int64) (default 0 .reserved | int64))) 9) 10) -}}
{{- else if regexMatch "^[0-9]+Gi$" $limit -}}
{{- printf "%dMiB" (div (mul (sub (mul (trimSuffix "Gi" $limit | int64) 1024) (default 0 .reserved | int64)) 9) 10) -}}
{{- end -}}
{{- end -}}

{{/* The parts of a pod's spec that are the same for every component. Beside the
component's dict it takes selectorLabels, and place: node selector, tolerations
and affinity of this Deployment alone. */}}
{{- define "fleetloop.podSpec" -}}
{{- $place := default dict .place -}}
serviceAccountName: {{ include "fleetloop.serviceAccountName" . }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- with .values.podSecurityContext }}
securityContext:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with default .values.nodeSelector $place.nodeSelector }}
nodeSelector:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .values.tolerations $place.tolerations }}
tolerations:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .values.affinity $place.affinity }}
affinity:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
{{- $constraint := . }}
{{- if not (hasKey . "labelSelector") }}
{{- $constraint = merge (dict "labelSelector" (dict "matchLabels" $.selectorLabels)) . }}
{{- end }}
{{- toYaml (list $constraint) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The parts of a container that are the same for every component. */}}
{{- define "fleetloop.container" -}}
image: {{ include "fleetloop.image" . }}
imagePullPolicy: {{ .values.image.pullPolicy }}
{{- with .values.securityContext }}
securityContext:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* env of a container: what the chart sets and what the user adds. It takes
chart and extra, lists of EnvVars, and what goMemLimit and metrics take. */}}
{{- define "fleetloop.env" -}}
{{- $env := .chart -}}
{{- with include "fleetloop.goMemLimit" (dict "resources" .resources "goMemLimit" .values.goMemLimit "reserved" .reserved) }}
{{- $env = append $env (dict "name" "GOMEMLIMIT" "value" .) }}
{{- end }}
{{- with .values.metrics.tokenSecret }}
{{- $env = append $env (dict "name" "METRICS_TOKEN" "valueFrom" (dict "secretKeyRef" (dict "name" . "key" $.values.metrics.tokenKey))) }}
{{- end }}
{{- toYaml (concat $env .values.extraEnv (default list .extra)) }}
{{- end -}}

{{- define "fleetloop.serviceAccount" -}}
{{- if .values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "fleetloop.metadata" (merge (dict "name" (include "fleetloop.serviceAccountName" .) "annotations" .values.serviceAccount.annotations) .) | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/* With maxUnavailable a single replica never blocks a drain. */}}
{{- define "fleetloop.podDisruptionBudget" -}}
{{- if .values.podDisruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "fleetloop.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- toYaml .selectorLabels | nindent 6 }}
{{- end -}}
{{- end -}}

{{/* It takes ports: a list of {port, from}. */}}
{{- define "fleetloop.networkPolicy" -}}
{{- if .values.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "fleetloop.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "fleetloop.selectorLabels" . | nindent 6 }}
  policyTypes:
    - Ingress
    {{- if not (kindIs "invalid" .values.networkPolicy.egress) }}
    - Egress
    {{- end }}
  ingress:
    {{- range .ports }}
    - ports:
        - port: {{ .port }}
      {{- with .from }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
  {{- with .values.networkPolicy.egress }}
  egress:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* "true" where objects of a kind of Prometheus's operator are made: enabled
says so, or it is auto and the cluster knows the kind. */}}
{{- define "fleetloop.monitored" -}}
{{- if eq (toString .enabled) "true" -}}
true
{{- else if and (eq (toString .enabled) "auto") (.root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind)) -}}
true
{{- end -}}
{{- end -}}

{{- define "fleetloop.serviceMonitor" -}}
{{- $monitor := .root.Values.monitoring.serviceMonitor -}}
{{- if include "fleetloop.monitored" (dict "root" .root "enabled" $monitor.enabled "kind" "ServiceMonitor") -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "fleetloop.metadata" (merge (dict "labels" $monitor.labels) .) | nindent 2 }}
spec:
  jobLabel: app.kubernetes.io/component
  selector:
    matchLabels:
      {{- include "fleetloop.selectorLabels" . | nindent 6 }}
  endpoints:
    - port: metrics
      path: /metrics
      interval: {{ $monitor.interval }}
      {{- with .values.metrics.tokenSecret }}
      authorization:
        credentials:
          name: {{ . }}
          key: {{ $.values.metrics.tokenKey }}
      {{- end }}
{{- end -}}
{{- end -}}
