#!/bin/sh
# Says how many own lines are linked into the plugin calico, and how many own functions, of how many files, one real ADD runs.
# In namespaces of its own, as root and after `make build isolate`: bin/tools/isolate scripts/addsize.sh
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go list -deps -tags grpcnotrace -f '{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./cmd/calico | grep "^$PWD/" | xargs cat | wc -l | sed 's/$/ own lines linked/'
cp -r bin "$dir/bin" && mkdir "$dir/cover"
CGO_ENABLED=0 go build -cover -coverpkg=./... -tags grpcnotrace -o "$dir/bin/calico" ./cmd/calico
CALICO_BIN_DIR="$dir/bin" GOCOVERDIR="$dir/cover" CGO_ENABLED=0 go test -count=1 -run '^TestDelByAnotherName$' ./pkg/cni >/dev/null
ls -t "$dir"/cover/covcounters.* | sed '$d' | xargs rm -f # all but the first call
go tool covdata func -i="$dir/cover" | awk '$NF != "0.0%" && $1 != "total" { n++; split($1, at, ":"); files[at[1]] } END { print n " functions in " length(files) " files" }'
