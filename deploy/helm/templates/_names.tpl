{{/* The beginning of all names: the release's, at most 30 characters, so that longer names still fit. */}}
{{- define "throng.name" -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- end }}

{{- define "throng.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{/* Labels of everything. */}}
{{- define "throng.labels" -}}
app.kubernetes.io/part-of: throng
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Labels that select the pods of one gateway. Takes (list context world). */}}
{{- define "throng.gateway" -}}
app.kubernetes.io/name: throng-gateway
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
throng/world: {{ index . 1 }}
{{- end }}

{{/* Labels that select the edges of one gateway. Takes (list context world). */}}
{{- define "throng.edge" -}}
app.kubernetes.io/name: throng-edge
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
throng/world: {{ index . 1 }}
{{- end }}

{{/* Labels that select the pods that clients of a world connect to. Takes (list context world). */}}
{{- define "throng.doors" -}}
{{- if gt (int (index . 0).Values.gateway.edges.replicas) 0 -}}
{{- include "throng.edge" . -}}
{{- else -}}
{{- include "throng.gateway" . -}}
{{- end -}}
{{- end }}

{{/* The text of a settings file: the user's, or the chart's. Takes (list context name). */}}
{{- define "throng.settings" -}}
{{- $own := index (index . 0).Values.gateway.settings (index . 1) -}}
{{- $own | default ((index . 0).Files.Get (printf "files/settings/%s" (index . 1))) -}}
{{- end }}

{{/* A pod without rights. Takes the user's number. */}}
{{- define "throng.unprivileged" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "throng.bare" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}
