{{/* What components that tell of changes have in common: global.changeEvents, as
environment, as files with the credentials, and as a part of their configuration
file. Nothing of it is there where it is off. */}}

{{- define "fleetloop.changeEvents.env" -}}
{{- $events := .Values.global.changeEvents -}}
{{- if not $events.enabled -}}
[]
{{- else -}}
- name: CHANGE_EVENTS_ENABLED
  value: "true"
{{- range $variable := list
      (list "CHANGE_EVENTS_ENDPOINT" $events.endpoint)
      (list "CHANGE_EVENTS_ENDPOINT_FILE" (include "fleetloop.changeEvents.file" (dict "what" "endpoint" "ref" $events.endpointSecretRef)))
      (list "CHANGE_EVENTS_CLUSTER_NAME" $events.clusterName)
      (list "CHANGE_EVENTS_TIMEOUT" $events.timeout)
      (list "CHANGE_EVENTS_SHUTDOWN_TIMEOUT" $events.shutdownTimeout)
      (list "CHANGE_EVENTS_FORMAT" $events.format)
      (list "CHANGE_EVENTS_AUTH_HEADER" (ternary "" $events.auth.headerName (eq $events.auth.headerName "Authorization")))
      (list "CHANGE_EVENTS_AUTH_SCHEME" $events.auth.scheme)
      (list "CHANGE_EVENTS_AUTH_TOKEN_FILE" (include "fleetloop.changeEvents.file" (dict "what" "token" "ref" $events.auth.secretRef)))
      (list "CHANGE_EVENTS_SIGNING_KEY_FILE" (include "fleetloop.changeEvents.file" (dict "what" "signing-key" "ref" $events.signingKeySecretRef)))
      (list "CHANGE_EVENTS_ACTIONS" (join "," $events.actions))
      (list "CHANGE_EVENTS_INCLUDE_OPTIONAL_ACTIONS" (ternary "true" "" $events.includeOptionalActions))
      (list "CHANGE_EVENTS_ALLOW_HTTP" (ternary "true" "" $events.allowHTTP))
      (list "CHANGE_EVENTS_ALLOW_ADDRESSES" (join "," $events.allowAddresses))
      (list "CHANGE_EVENTS_ALLOW_HOSTS" (include "fleetloop.changeEvents.hosts" .)) }}
{{- with last $variable }}
- name: {{ first $variable }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The names of the fleet API of this release, which is a sink like others but
for its address, which is private. */}}
{{- define "fleetloop.changeEvents.hosts" -}}
{{- if .Values.fleetApi.enabled -}}
{{- $service := printf "%s.%s" (include "fleetloop.fleetApi.serviceName" .) .Release.Namespace -}}
{{- $port := int .Values.fleetApi.service.port -}}
{{- printf "%s:%d,%s.svc:%d,%s.svc.cluster.local:%d" $service $port $service $port $service $port -}}
{{- end -}}
{{- end -}}

{{/* Where a credential is, if there is one. It takes what, ref and, of a sink of
the list, sink. */}}
{{- define "fleetloop.changeEvents.file" -}}
{{- if (default dict .ref).name -}}
{{- printf "/etc/change-events/%s%s/%s" (ternary (printf "sinks/%s/" .sink) "" (hasKey . "sink")) .what .ref.key -}}
{{- end -}}
{{- end -}}

{{/* The Secrets with credentials, as a YAML list of {volume, path, name, what}. A
folder of a Secret follows it when it changes; a file of its own would not. */}}
{{- define "fleetloop.changeEvents.secrets" -}}
{{- $events := .Values.global.changeEvents -}}
{{- $list := list -}}
{{- if $events.enabled -}}
{{- range $what, $ref := dict "token" $events.auth.secretRef "endpoint" $events.endpointSecretRef "signing-key" $events.signingKeySecretRef -}}
{{- if $ref.name -}}
{{- $list = append $list (dict "volume" (printf "change-events-%s" $what) "path" $what "name" $ref.name "key" $ref.key "what" $what) -}}
{{- end -}}
{{- end -}}
{{- range $sink := $events.sinks -}}
{{- range $what, $ref := default dict $sink.secretRefs -}}
{{- $list = append $list (dict "volume" (printf "change-events-%s-%s" ($what | kebabcase) $sink.name | trunc 63 | trimSuffix "-") "path" (printf "sinks/%s/%s" $sink.name ($what | kebabcase)) "name" $ref.name "key" $ref.key "what" (printf "%s of the sink %s" ($what | kebabcase) $sink.name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $list | toYaml -}}
{{- end -}}

{{- define "fleetloop.changeEvents.mounts" -}}
{{- $list := list -}}
{{- range include "fleetloop.changeEvents.secrets" . | fromYamlArray -}}
{{- $list = append $list (dict "name" .volume "mountPath" (printf "/etc/change-events/%s" .path) "readOnly" true) -}}
{{- end -}}
{{- $list | toYaml -}}
{{- end -}}

{{/* A Secret that is not there yet keeps no component from its work: what is to be
told waits for it. */}}
{{- define "fleetloop.changeEvents.volumes" -}}
{{- $list := list -}}
{{- range include "fleetloop.changeEvents.secrets" . | fromYamlArray -}}
{{- $list = append $list (dict "name" .volume "secret" (dict "secretName" .name "optional" true)) -}}
{{- end -}}
{{- $list | toYaml -}}
{{- end -}}

{{/* The configuration file of a component that tells of changes: its own, and
what of global.changeEvents no variable can say; its own wins. It takes root and
config. Empty is none. */}}
{{- define "fleetloop.changeEvents.config" -}}
{{- $events := .root.Values.global.changeEvents -}}
{{- $config := deepCopy .config -}}
{{- if $events.enabled -}}
{{- $part := deepCopy $events.config -}}
{{- $sinks := list -}}
{{- range $sink := $events.sinks -}}
{{- $one := omit $sink "secretRefs" -}}
{{- range $what, $ref := default dict $sink.secretRefs -}}
{{- $_ := set $one (printf "%s_file" ($what | snakecase)) (include "fleetloop.changeEvents.file" (dict "what" ($what | kebabcase) "ref" $ref "sink" $sink.name)) -}}
{{- end -}}
{{- $sinks = append $sinks $one -}}
{{- end -}}
{{- with $sinks -}}
{{- $_ := set $part "sinks" . -}}
{{- end -}}
{{- with $part -}}
{{- $_ := set $config "change_events" (mergeOverwrite (deepCopy .) (default dict (get $config "change_events"))) -}}
{{- end -}}
{{- end -}}
{{- with $config -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* Refuses a URL that no sink can be reached by, as the component would. It takes
root, key (the value's name), url, http and addresses (the values that allow plain
http and private addresses, with their names), proxy. */}}
{{- define "fleetloop.changeEvents.checkURL" -}}
{{- $authority := regexReplaceAll "^https?://([^/?#]*).*$" .url "${1}" -}}
{{- $host := regexReplaceAll ":[0-9]+$" $authority "" -}}
{{- $own := include "fleetloop.changeEvents.hosts" .root | splitList "," -}}
{{- $local := regexMatch "^(localhost|127\\.[0-9.]+|\\[::1\\])$" $host -}}
{{- $private := "^((10|127|0)(\\.[0-9]+){3}|(192\\.168|169\\.254|172\\.(1[6-9]|2[0-9]|3[01])|100\\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7]))(\\.[0-9]+){2}|\\[(::|f[cd]|fe[89ab])[0-9a-f:.]*\\])$" -}}
{{- if not (regexMatch "^https?://[^/?#[:space:]]+" .url) -}}
{{- fail (printf "%s is not a valid URL: it must begin with https:// and a host" .key) -}}
{{- else if contains "@" $authority -}}
{{- fail (printf "%s must not contain a user or password: put the credential into a Secret" .key) -}}
{{- else if contains "#" .url -}}
{{- fail (printf "%s must not contain a fragment (#…): remove it" .key) -}}
{{- else if and (hasPrefix "http://" .url) (not .http.is) (not $local) (not (has (ternary $authority (printf "%s:80" $authority) (ne $host $authority)) $own)) -}}
{{- fail (printf "%s uses plain http, which exposes the credential: use https://, or set %s=true" .key .http.key) -}}
{{- else if and (regexMatch $private ($host | lower)) (not $local) (not .addresses.are) (not .proxy) -}}
{{- fail (printf "%s has the non-public address %s, which is denied by default: add it to %s" .key $host .addresses.key) -}}
{{- end -}}
{{- end -}}

{{/* Refuses a sink of the list that could not work. It takes root and sink. */}}
{{- define "fleetloop.changeEvents.checkSink" -}}
{{- $where := printf "the sink %q of global.changeEvents.sinks" .sink.name -}}
{{- $secrets := default dict .sink.secretRefs -}}
{{- $url := default "" .sink.endpoint -}}
{{- $places := compact (list $url (default "" .sink.endpoint_file) (ternary "secret" "" (hasKey $secrets "endpoint"))) -}}
{{- if not $places -}}
{{- fail (printf "%s has no endpoint: set endpoint, or set secretRefs.endpoint to a Secret with the URL" $where) -}}
{{- else if gt (len $places) 1 -}}
{{- fail (printf "%s has more than one of endpoint, endpoint_file and secretRefs.endpoint: keep one" $where) -}}
{{- else if $url -}}
{{- include "fleetloop.changeEvents.checkURL" (dict "root" .root "key" (printf "the endpoint of %s" $where) "url" $url "proxy" .sink.proxy_url
      "http" (dict "is" .sink.allow_http "key" "its allow_http") "addresses" (dict "are" .sink.allow_addresses "key" "its allow_addresses")) -}}
{{- end -}}
{{- if and (eq (default "" .sink.format) "pagerduty") (not (or (hasKey $secrets "routingKey") (hasKey $secrets "authToken") .sink.routing_key_file .sink.auth_token_file)) -}}
{{- fail (printf "%s has the format pagerduty but no routing key: set secretRefs.routingKey to a Secret with the key" $where) -}}
{{- end -}}
{{- end -}}
