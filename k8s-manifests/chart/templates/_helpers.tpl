{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The installation that the values choose: one of tools/manifests. */}}
{{- define "calico.variant" -}}
{{- if .Values.etcd.endpoints -}}
external
{{- else -}}
{{ if eq (int .Values.etcd.members) 3 }}ha{{ else }}own{{ end }}{{ if .Values.hostProtection }}-protected{{ end }}
{{- end -}}
{{- end -}}

{{/* The reference of an image: a list of the root and the image's name in the values. */}}
{{- define "calico.image" -}}
{{- $root := index . 0 -}}
{{- $image := get $root.Values.images (index . 1) -}}
{{- with $root.Values.images.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- with $image.digest }}@{{ . }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* Nine tenths of a container's limit of memory: the garbage collector works harder before the kernel ends the process. */}}
{{- define "calico.goMemoryLimit" -}}
{{- $limit := .limits.memory -}}
{{- $mebibytes := regexFind "^[0-9]+" $limit | int64 -}}
{{- if hasSuffix "Gi" $limit }}{{ $mebibytes = mul $mebibytes 1024 }}{{ end -}}
{{ div (mul $mebibytes 9) 10 }}MiB
{{- end -}}
