# SPDX-License-Identifier: Apache-2.0
# Needs Go, and root or user namespaces. Everything that touches a network does so in namespaces of its own.

GO       ?= go
# A release is 0.1.0; a build of another commit has the commit's hash behind it.
RELEASE  := 0.1.0
VERSION  ?= $(RELEASE)$(shell git describe --tags --exact-match >/dev/null 2>&1 || git describe --always --dirty --exclude '*' 2>/dev/null | sed 's/^/+/')
COMMANDS := $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))
# The first takes the longest, and waits most of it.
PKG      ?= ./test/routing ./...
FUZZTIME ?= 30s
# For the tests of one package.
TIMEOUT  ?= 20m
# How many packages are tested at the same time: mostly they wait.
PACKAGES ?= $(shell expr 2 \* $$(nproc))

# The race detector needs a C compiler; everything else is built without one.
RACE     := $(shell command -v $$($(GO) env CC | cut -d' ' -f1) >/dev/null 2>&1 && echo -race)
ISOLATE  := bin/tools/isolate
TAGS     := $(shell scripts/tags.sh shipped)

.PHONY: build demo test e2e e2e-vm e2e-k8s kubernetes bench fuzz lint clean tools isolate modules programs images manifests protos

build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '-s -w -X main.version=$(VERSION)' \
		-o bin/ $(addprefix ./cmd/,$(COMMANDS))

# The container images, as tars for `ctr -n k8s.io images import` and `docker load` and as OCI layouts: no container engine
# is needed. IMAGEFLAGS='-arch amd64 -only calico' makes a part.
images:
	$(GO) run -C tools ./images -version '$(VERSION)' -tag '$(RELEASE)' -build-tags '$(TAGS)' \
		-created "$$(git log -1 --format=%ct 2>/dev/null || echo 0)" $(IMAGEFLAGS)

# k8s-manifests/calico.yaml and calico-etcd.yaml, from the kustomize base and components beside them. Those of one build, by the digests of
# its images: MANIFESTFLAGS='-images ../bin/images -out ../bin/k8s-manifests'.
manifests:
	$(GO) run -C tools ./manifests -release '$(RELEASE)' $(MANIFESTFLAGS)

# The Go code of api/nsm, from its .proto files. A test holds it to them.
protos:
	$(GO) run -C tools ./protos

demo: build isolate
	$(ISOLATE) bin/calico-lab demo

# -count=1: Go's cache doesn't know the kernel, which tests depend on. Random histories are short; TESTFLAGS= makes them long.
TESTFLAGS ?= -short
test: programs build isolate modules tools
ifeq ($(RACE),)
	@echo 'test: no C compiler ($(shell $(GO) env CC)): running without the race detector'
endif
	CALICO_BIN_DIR="$(CURDIR)/bin" PATH="$$PATH:/usr/sbin:/sbin:$(CURDIR)/bin/tools" GORACE='suppressions="$(CURDIR)/scripts/race-suppressions.txt"' \
		CGO_ENABLED=$(if $(RACE),1,0) $(ISOLATE) $(GO) test $(RACE) $(TESTFLAGS) -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(PKG)
	$(ISOLATE) $(GO) test -C tools ./...

e2e: build isolate modules tools
	scripts/vmkernel.sh bin/vm/kernel
	CALICO_BIN_DIR="$(CURDIR)/bin" PATH="$(CURDIR)/bin/tools:$$PATH" $(ISOLATE) $(GO) test -tags e2e -count=1 -timeout $(TIMEOUT) $(E2EFLAGS) ./test/e2e/... ./pkg/bgp ./pkg/kernel/legacy

# Tests of what this machine's kernel may lack, such as IPIP, in an emulated machine with Debian's kernel. VMFLAGS=-run=IPIP runs a part.
e2e-vm: build modules
	scripts/vmkernel.sh bin/vm/kernel
	rm -f bin/vm/*.test
	CGO_ENABLED=0 $(GO) test -c -trimpath -tags e2evm,$(TAGS) -o bin/vm/ ./pkg/kernel/...
	CGO_ENABLED=0 $(GO) test -c -trimpath -tags e2evm,$(TAGS) -o bin/vm/guest.test ./test/vm/guest
	$(GO) run ./test/vm $(VMFLAGS) bin/vm/*.test

# Tests on a real Kubernetes. K8SFLAGS=-run=Smoke runs a part.
K8SFILES := $(shell grep -rl --include='*_test.go' '^//go:build e2ek8s' cmd pkg test)
K8SPACKAGES ?= $(sort $(dir $(K8SFILES)))
e2e-k8s: build isolate modules tools kubernetes
	$(MAKE) images IMAGEFLAGS='-arch $(shell $(GO) env GOARCH)'
	@# Without these packages' other tests, which are make test's.
	CALICO_BIN_DIR="$(CURDIR)/bin" PATH="$$PATH:/usr/sbin:/sbin:$(CURDIR)/bin/tools" \
		$(ISOLATE) $(GO) test -tags e2ek8s -p 1 -count=1 -timeout 90m \
		-run "^($$(sed -nE 's/^func (Test[A-Za-z0-9]+).*/\1/p' $(K8SFILES) | paste -sd'|'))$$" $(K8SFLAGS) $(addprefix ./,$(K8SPACKAGES))

# A Kubernetes cluster's programs, from Go modules: eight minutes of a processor the first time. Beside them are upstream's tests of
# NetworkPolicy and ClusterNetworkPolicy.
KUBERNETES := CGO_ENABLED=0 GOGC=400 $(GO)
KUBERNETES_VERSION := 1.34.4
KUBERNETES_BUILD := -C tools/kubernetes -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags '-s -w \
	-X k8s.io/component-base/version.gitVersion=v$(KUBERNETES_VERSION) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34'
KUBERNETES_PROGRAMS := etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl

kubernetes:
	mkdir -p bin/kubernetes
	$(KUBERNETES) build $(KUBERNETES_BUILD) -o ../../bin/kubernetes/kubernetes .
	cd bin/kubernetes && for p in $(KUBERNETES_PROGRAMS); do ln -f kubernetes $$p; done
	$(KUBERNETES) build $(KUBERNETES_BUILD) -o ../../bin/kubernetes/ ./pause k8s.io/kubernetes/test/images/agnhost
	$(KUBERNETES) build $(KUBERNETES_BUILD) -tags no_btrfs,no_devmapper,no_zfs,no_aufs -o ../../bin/kubernetes/containerd2/ \
		$(addprefix github.com/containerd/containerd/v2/cmd/,containerd containerd-shim-runc-v2 ctr)
	$(KUBERNETES) test $(KUBERNETES_BUILD) -c -o ../../bin/kubernetes/e2e-netpol.test ./netpol
	$(KUBERNETES) test -C tools/conformance -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags '-s -w' \
		-c -o ../../bin/kubernetes/clusterpolicy.test sigs.k8s.io/network-policy-api/conformance

# The section kubernetes needs more; BENCHFLAGS='-run verbs' runs another alone.
bench: build isolate modules tools $(if $(or $(findstring kubernetes,$(BENCHFLAGS)),$(if $(findstring -run,$(BENCHFLAGS)),,all)),kubernetes)
	$(if $(filter kubernetes,$^),$(MAKE) images IMAGEFLAGS='-arch $(shell $(GO) env GOARCH)')
	PATH="$(CURDIR)/bin/tools:$$PATH" $(ISOLATE) $(GO) run ./test/bench $(BENCHFLAGS)

fuzz: isolate modules
	GO="$(GO)" FUZZTIME="$(FUZZTIME)" scripts/fuzz.sh $(PKG)

lint: tools modules
	GO="$(GO)" scripts/lint.sh

clean:
	rm -rf bin

# What tests run besides: nft, conntrack, etcdctl, … Installs it where it can.
programs:
	@GO="$(GO)" scripts/programs.sh

# Linters, and the reference CNI plugins that tests and benchmarks run against: pinned in tools/go.mod, not in ours.
# etcd's programs are pinned there too: `make images` packs them, and scripts/programs.sh builds etcdctl where no package
# brings it.
tools:
	CGO_ENABLED=0 $(GO) build -C tools -trimpath -buildvcs=false -ldflags '-s -w' -o ../bin/tools/ \
		$$($(GO) list -C tools tool | grep -v go.etcd.io/)

isolate:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o $(ISOLATE) ./scripts/isolate

# Fetches the modules of the tests: there is no network inside the namespaces.
modules:
	@$(GO) list -tags '$(shell scripts/tags.sh)' -deps -test ./... >/dev/null
	@$(GO) list -C tools -deps -test ./... >/dev/null
