{{- define "odradek.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "odradek.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Of a dict with root and role: what selects the pods of that role. */}}
{{- define "odradek.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "odradek.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The domain of the pods of a role. */}}
{{- define "odradek.domain" -}}
{{ include "odradek.name" .root }}-{{ .role }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{- define "odradek.voters" -}}
{{- $domain := include "odradek.domain" (dict "root" . "role" "controller") }}
{{- $name := include "odradek.name" . }}
{{- $voters := list }}
{{- range $each := until (int .Values.controllers.replicas) }}
{{- $id := add $.Values.controllers.firstId $each }}
{{- $voters = append $voters (printf "%d@%s-controller-%d.%s:%v" $id $name $each $domain $.Values.ports.controller) }}
{{- end }}
{{- join "," $voters }}
{{- end }}

{{/* Each broker by its own name: what clients begin with. */}}
{{- define "odradek.bootstrap" -}}
{{- $domain := include "odradek.domain" (dict "root" . "role" "broker") }}
{{- $name := include "odradek.name" . }}
{{- $brokers := list }}
{{- range $each := until (int .Values.brokers.replicas) }}
{{- $brokers = append $brokers (printf "%s-broker-%d.%s:%v" $name $each $domain $.Values.ports.client) }}
{{- end }}
{{- join "," $brokers }}
{{- end }}

{{/* The port at which clients outside reach a broker: start.sh puts that of its pod in the place of {nodePort}. */}}
{{- define "odradek.externalPort" -}}
{{ if eq .Values.external.type "NodePort" }}{nodePort}{{ else }}{{ .Values.ports.external }}{{ end }}
{{- end }}

{{- define "odradek.nodePorts" -}}
{{- $ports := list }}
{{- range $each := .Values.external.nodePorts }}{{ $ports = append $ports (int $each | toString) }}{{ end }}
{{- if lt (len $ports) (int .Values.brokers.replicas) }}
{{- fail "external.nodePorts has a port for each broker where external.type is NodePort: a broker advertises it" }}
{{- end }}
{{- join " " $ports }}
{{- end }}

{{/* Helm reads each number as a float, and prints a large one as 1e+06. */}}
{{- define "odradek.properties" -}}
{{- range $key, $value := . }}
{{ $key }}={{ if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value | int64 }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}

{{/* Where pods of a role may be: of a dict with root, role and pool. */}}
{{- define "odradek.affinity" -}}
{{- $other := ternary "controller" "broker" (eq .role "broker") }}
{{- $between := .root.Values.antiAffinityBetween }}
{{- $rules := list (dict "how" .pool.antiAffinity "role" .role) (dict "how" $between "role" $other) }}
podAntiAffinity:
{{- range $how := list "required" "preferred" }}
{{- $chosen := list }}
{{- range $rule := $rules }}{{ if eq $rule.how $how }}{{ $chosen = append $chosen $rule.role }}{{ end }}{{ end }}
{{- if and $chosen (eq $how "required") }}
  requiredDuringSchedulingIgnoredDuringExecution:
  {{- range $role := $chosen }}
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels: {{- include "odradek.selector" (dict "root" $.root "role" $role) | nindent 10 }}
  {{- end }}
{{- else if $chosen }}
  preferredDuringSchedulingIgnoredDuringExecution:
  {{- range $role := $chosen }}
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "odradek.selector" (dict "root" $.root "role" $role) | nindent 12 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "odradek.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "odradek.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
