{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type -}}
## {{ .Name }}

{{ .Doc }}
{{ if .References }}
Used by:
{{- range $i, $reference := .SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $reference }}{{ end }}
{{ end }}
{{- if and .Validation (not .EnumValues) }}
{{ range .Validation -}}
- {{ . }}
{{ end }}
{{- end }}
{{- if .Members }}
| field | type | meaning |
| --- | --- | --- |
{{ range .Members -}}
| `{{ .Name }}`{{ template "required" .Validation }} | {{ markdownRenderType .Type }} | {{ template "type_members" . }} |
{{ end -}}
{{ end -}}
{{- if .EnumValues }}
| value | meaning |
| --- | --- |
{{ range .EnumValues -}}
| `{{ .Name }}` | {{ markdownRenderFieldDoc (trim .Doc) }} |
{{ end -}}
{{ end }}
{{ end -}}
{{- end -}}

{{- define "required" -}}
{{- range . }}{{ if hasPrefix "Required" . }} (required){{ end }}{{ end -}}
{{- end -}}
