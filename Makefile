# SPDX-License-Identifier: Apache-2.0
# Needs Go, and root or user namespaces. Everything that touches a network does so in namespaces of its own.

GO       ?= go
# A release is 0.1.0; a build of another commit has the commit's hash behind it.
RELEASE  := 0.1.0
VERSION  ?= $(RELEASE)$(shell git describe --tags --exact-match >/dev/null 2>&1 || git describe --always --dirty --exclude '*' 2>/dev/null | sed 's/^/+/')
COMMANDS := $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))
# The first take the longest, and wait most of it.
PKG      ?= ./test/routing ./test/chaos ./...
FUZZTIME ?= 30s
# For the tests of one package, however busy the machine is: each wait in them has a limit of its own.
TIMEOUT  ?= $(if $(FULL),60m,30m)
# How many packages are tested at the same time.
PACKAGES ?= $(shell nproc)

# The race detector needs a C compiler; everything else is built without one.
RACE     := $(shell command -v $$($(GO) env CC | cut -d' ' -f1) >/dev/null 2>&1 && echo -race)
ISOLATE  := bin/tools/isolate
TAGS     := $(shell scripts/tags.sh shipped)

# Runs tests where they can do the machine no harm; what became of each is in bin/test/TARGET.json. RERUN=1 runs what fails again, twice at
# most; a data race is never run again.
GOTESTSUM = $(ISOLATE) bin/tools/gotestsum --format pkgname-and-test-fails --hide-summary skipped,output --jsonfile bin/test/$@.json \
	$(if $(RERUN),--rerun-fails=2 --rerun-fails-max-failures=6 --rerun-fails-abort-on-data-race)

.PHONY: build demo test smoke soak e2e e2e-vm e2e-k8s kubernetes bench fuzz lint vuln clean tools isolate modules programs images manifests protos

build:
	@GO="$(GO)" VERSION='$(VERSION)' scripts/build.sh $(COMMANDS)

# The container images, as tars for `ctr -n k8s.io images import` and `docker load` and as OCI layouts: no container engine
# is needed. IMAGEFLAGS='-arch amd64 -only calico' makes a part.
images:
	$(GO) run -C tools ./images -version '$(VERSION)' -tag '$(RELEASE)' -build-tags '$(TAGS)' \
		-created "$$(git log -1 --format=%ct 2>/dev/null || echo 0)" $(IMAGEFLAGS)

# k8s-manifests/calico.yaml and calico-etcd.yaml, and the chart's templates, from the kustomize base and components beside them. The manifests
# of one build, by the digests of its images: MANIFESTFLAGS='-images ../bin/images -out ../bin/k8s-manifests'.
manifests:
	$(GO) run -C tools ./manifests -release '$(RELEASE)' $(MANIFESTFLAGS)

# The Go code of api/nsm, from its .proto files. A test holds it to them.
protos:
	$(GO) run -C tools ./protos

# What it runs is built, and no more.
demo: isolate
	@GO="$(GO)" VERSION='$(VERSION)' scripts/build.sh calico calico-ipam calico-node calico-lab
	$(ISOLATE) bin/calico-lab demo

# The short form of all tests; FULL=1 is the long one. -count=1: Go's cache doesn't know the kernel, which tests depend on.
test: programs modules build isolate tools
ifeq ($(RACE),)
	@echo 'test: no C compiler ($(shell $(GO) env CC)): running without the race detector'
endif
	@mkdir -p bin/test && rm -f bin/test/$@.*
	CALICO_BIN_DIR="$(CURDIR)/bin" PATH="$$PATH:/usr/sbin:/sbin:$(CURDIR)/bin/tools" GORACE='suppressions="$(CURDIR)/scripts/race-suppressions.txt"' \
		CGO_ENABLED=$(if $(RACE),1,0) $(GOTESTSUM) --packages='$(PKG)' -- $(RACE) $(if $(FULL),,-short) -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS)
	$(ISOLATE) $(GO) test -C tools ./...
	$(ISOLATE) $(GO) test -C tools/consumers ./...
	$(ISOLATE) $(GO) test -C tools/judge $(if $(FULL),,-short) ./...

# The whole through the built binaries: a walk for each capability.
SMOKE := Plain|TopOfRackBIRD|Calicoctl|VMClients|Connections|Classic
smoke: PROGRAMS = test smoke
smoke: programs modules build isolate tools
	@mkdir -p bin/test && rm -f bin/test/$@.*
	CALICO_BIN_DIR="$(CURDIR)/bin" PATH="$(CURDIR)/bin/tools:$$PATH:/usr/sbin:/sbin" \
		$(GOTESTSUM) --packages='./test/e2e ./test/nsm ./test/classic' -- -tags e2e -p 1 -count=1 -timeout $(TIMEOUT) -run '^Test($(SMOKE))$$'
	@for t in $(subst |, ,$(SMOKE)); do \
		grep -q "\"pass\".*\"Test$$t\"" bin/test/$@.json || { echo "smoke: there is no Test$$t" >&2; exit 1; }; \
	done

# Everything, whole, part after part: hours. PARTS='chaos e2e-k8s' runs some; RESUME=1 goes on where it was. Logs are in bin/soak.
soak:
	GO="$(GO)" scripts/soak.sh $(PARTS)

e2e: PROGRAMS = test e2e
e2e: programs modules build isolate tools
	scripts/vmkernel.sh bin/vm/kernel
	@mkdir -p bin/test && rm -f bin/test/$@.*
	CALICO_BIN_DIR="$(CURDIR)/bin" PATH="$(CURDIR)/bin/tools:$$PATH:/usr/sbin:/sbin" \
		$(GOTESTSUM) --packages='./test/e2e/... ./test/classic ./pkg/bgp ./pkg/kernel/legacy' -- -tags e2e -p 1 -count=1 -timeout 60m $(E2EFLAGS)

# Tests of what this machine's kernel may lack, such as IPIP, in an emulated machine with Debian's kernel. VMFLAGS=-run=IPIP runs a part.
e2e-vm: PROGRAMS = test e2e
e2e-vm: programs build modules
	scripts/vmkernel.sh bin/vm/kernel
	rm -f bin/vm/*.test
	CGO_ENABLED=0 $(GO) test -c -trimpath -tags e2evm,$(TAGS) -o bin/vm/ ./pkg/kernel/...
	CGO_ENABLED=0 $(GO) test -c -trimpath -tags e2evm,$(TAGS) -o bin/vm/guest.test ./test/vm/guest
	$(GO) run ./test/vm $(VMFLAGS) bin/vm/*.test

# Tests on a real Kubernetes. K8SFLAGS=-run=Smoke runs a part. FORMER=COMMIT is the release that TestUpgrade comes from and goes back to.
K8SFILES := $(shell grep -rl --include='*_test.go' '^//go:build e2ek8s' cmd pkg test)
K8SPACKAGES ?= $(sort $(dir $(K8SFILES)))
e2e-k8s: PROGRAMS = test e2e
e2e-k8s: programs modules build isolate tools kubernetes
	$(MAKE) images IMAGEFLAGS='-arch $(shell $(GO) env GOARCH)'
	$(if $(FORMER),rm -rf bin/former && mkdir bin/former && git archive $(FORMER) | tar -x -C bin/former && \
		$(MAKE) -C bin/former images FORMER= IMAGEFLAGS='-arch $(shell $(GO) env GOARCH) -tag 0.0.9')
	@# Without these packages' other tests, which are make test's.
	@mkdir -p bin/test && rm -f bin/test/$@.*
	CALICO_BIN_DIR="$(CURDIR)/bin" FORMER="$(if $(FORMER),$(CURDIR)/bin/former)" PATH="$$PATH:/usr/sbin:/sbin:$(CURDIR)/bin/tools" \
		$(GOTESTSUM) --packages='$(addprefix ./,$(K8SPACKAGES))' -- -tags e2ek8s -p 1 -count=1 -timeout 180m \
		-run "^($$(sed -nE 's/^func (Test[A-Za-z0-9]+).*/\1/p' $(K8SFILES) | paste -sd'|'))$$" $(K8SFLAGS)

# A Kubernetes cluster's programs, from Go modules: eight minutes of a processor the first time. Beside them are tests of
# NetworkPolicy and ClusterNetworkPolicy: upstream's, and cyclonus'.
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
	$(KUBERNETES) test $(KUBERNETES_BUILD) -vet=off -c -o ../../bin/kubernetes/e2e-netpol.test ./netpol
	$(KUBERNETES) test -C tools/conformance -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags '-s -w' \
		-vet=off -c -o ../../bin/kubernetes/clusterpolicy.test sigs.k8s.io/network-policy-api/conformance
	$(KUBERNETES) test -C tools/cyclonus -trimpath -buildvcs=false -ldflags '-s -w' -vet=off -c -o ../../bin/kubernetes/cyclonus.test .
	$(KUBERNETES) build -C tools/cyclonus -trimpath -buildvcs=false -ldflags '-s -w' -o ../../bin/kubernetes/cyclonus-worker github.com/mattfenwick/cyclonus/cmd/worker

# The section kubernetes needs more; BENCHFLAGS='-run verbs' runs another alone.
bench: build isolate modules tools $(if $(or $(findstring kubernetes,$(BENCHFLAGS)),$(if $(findstring -run,$(BENCHFLAGS)),,all)),kubernetes)
	$(if $(filter kubernetes,$^),$(MAKE) images IMAGEFLAGS='-arch $(shell $(GO) env GOARCH)')
	PATH="$(CURDIR)/bin/tools:$$PATH" $(ISOLATE) $(GO) run ./test/bench $(BENCHFLAGS)

fuzz: isolate modules
	GO="$(GO)" FUZZTIME="$(FUZZTIME)" scripts/fuzz.sh $(PKG)

lint: modules tools
	GO="$(GO)" scripts/lint.sh

# Known vulnerabilities in what the binaries call, where govulncheck's database can be reached.
vuln: modules tools
	@scripts/vuln.sh

clean:
	rm -rf bin

# What tests run besides: nft, conntrack, etcdctl, … Installs it where it can.
PROGRAMS = test
programs:
	@GO="$(GO)" scripts/programs.sh $(PROGRAMS)

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
	@{ $(GO) list -tags '$(shell scripts/tags.sh)' -deps -test ./... && $(GO) list -C tools -deps -test ./... && $(GO) list -C tools/consumers -deps -test ./... && \
		$(GO) list -C tools/judge -deps -test ./...; } >/dev/null || \
		{ echo 'Go modules that tests need are missing: see above, and `go help goproxy` for where they come from' >&2; exit 1; }
