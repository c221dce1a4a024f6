{{- define "gvList" -}}
# API

Written by `make generate` from the source; do not edit.

{{ range . }}{{ template "gvDetails" . }}{{ end }}
{{- end -}}
