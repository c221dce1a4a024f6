{{- define "gvDetails" -}}
{{- $gv := . -}}
Kinds of `{{ .GroupVersionString }}`. What you write is a [StorageClientProfileSpec](#storageclientprofilespec).
{{ range .SortedKinds }}
- {{ $gv.TypeForKind . | markdownRenderTypeLink }}
{{- end }}

{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end -}}
