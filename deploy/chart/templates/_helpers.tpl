{{- define "aif.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "aif.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "aif.host" -}}
{{- (urlParse .Values.publicUrl).hostname -}}
{{- end -}}

{{/* Labels that select the pods of a process: never change between releases. Call with (dict "root" $ "process" "web"). */}}
{{- define "aif.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .process }}
{{- end -}}

{{- define "aif.labels" -}}
{{ include "aif.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Settings that are no secrets. Those that are come from files below /run/secrets/aif, see aif.secrets. */}}
{{- define "aif.settings" -}}
{{- $settings := dict
  "DJANGO_SETTINGS_MODULE" "portal.settings.production"
  "AIF_PUBLIC_URL" .root.Values.publicUrl
  "AIF_ALLOWED_HOSTS" (join "," (concat (list (include "aif.host" .root)) .root.Values.extraHosts (list "$(AIF_POD_IP)")))
  "AIF_BEHIND_TLS_PROXY" "1"
  "AIF_LOCAL_ACCOUNTS" (ternary "1" "0" .root.Values.localAccounts)
-}}
{{- if .root.Values.oidc.issuer }}
{{- $_ := set $settings "AIF_OIDC_ISSUER" .root.Values.oidc.issuer }}
{{- $_ := set $settings "AIF_OIDC_CLIENT_ID" (required "oidc.clientId goes with oidc.issuer" .root.Values.oidc.clientId) }}
{{- end }}
{{- range $name, $value := .root.Values.settings }}
{{- $_ := set $settings $name $value }}
{{- end }}
{{- range $name, $value := .extra }}
{{- $_ := set $settings $name $value }}
{{- end }}
# Prometheus asks for /metrics by the pod's address.
- {name: AIF_POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- range $name, $value := $settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{- define "aif.secretKeys" -}}
{{- $keys := list "AIF_SECRET_KEY" "AIF_ENCRYPTION_KEYS" "AIF_TOKEN_PEPPER" "AIF_BROKER_URL" -}}
{{- if .root.Values.secretKeyFallbacks }}{{ $keys = append $keys "AIF_SECRET_KEY_FALLBACKS" }}{{ end -}}
{{- if .root.Values.oidc.issuer }}{{ $keys = append $keys "AIF_OIDC_CLIENT_SECRET" }}{{ end -}}
{{- if .root.Values.metrics.enabled }}{{ $keys = append $keys "AIF_METRICS_TOKEN" }}{{ end -}}
{{- join "," $keys -}}
{{- end -}}

{{- define "aif.secretSettings" -}}
{{- range splitList "," (include "aif.secretKeys" .) }}
- {name: {{ . }}_FILE, value: /run/secrets/aif/{{ . }}}
{{- end }}
- {name: AIF_DATABASE_URL_FILE, value: /run/secrets/aif/AIF_DATABASE_URL}
{{- end -}}

{{/* The pod of a process. Call with (dict "root" $ "process" "web" "command" (list …) "extra" (dict …) "resources" … "owner" false). */}}
{{- define "aif.pod" -}}
metadata:
  labels:
    {{- include "aif.labels" . | nindent 4 }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .root.Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # The portal speaks to clusters with the kubeconfigs that it was given, never with the pod's own account.
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .grace | default 30 }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .spread }}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "aif.selector" . | nindent 8 }}
  {{- end }}
  {{- if .restartPolicy }}
  restartPolicy: {{ .restartPolicy }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
  - name: {{ .process }}
    image: {{ include "aif.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command: {{ toJson .command }}
    env:
    {{- include "aif.settings" . | nindent 4 }}
    {{- include "aif.secretSettings" . | nindent 4 }}
    {{- with .ports }}
    ports:
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .probes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
    - {name: secrets, mountPath: /run/secrets/aif, readOnly: true}
    - {name: scratch, mountPath: /tmp}
  volumes:
  - name: secrets
    secret:
      secretName: {{ .root.Values.existingSecret }}
      defaultMode: 0440
      items:
      {{- range splitList "," (include "aif.secretKeys" .) }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
      - {key: {{ ternary "AIF_OWNER_DATABASE_URL" "AIF_DATABASE_URL" (eq .process "migration") }}, path: AIF_DATABASE_URL}
  - name: scratch
    emptyDir: {sizeLimit: 256Mi}
{{- end -}}
