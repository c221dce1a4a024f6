{{- define "gvDetails" -}}
{{- $gv := . -}}
Kinds of `{{ .GroupVersionString }}`. You write a [StorageClientProfileSpec](#storageclientprofilespec).
{{ range .SortedKinds }}
- {{ $gv.TypeForKind . | markdownRenderTypeLink }}
{{- end }}

{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end -}}
