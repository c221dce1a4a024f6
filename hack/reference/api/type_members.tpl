{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}Kubernetes' own.{{- else -}}{{ markdownRenderFieldDoc .Doc }}{{- end -}}
{{- end -}}
