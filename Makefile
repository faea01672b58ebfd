# SPDX-License-Identifier: Apache-2.0
# Needs Go, and root or user namespaces. Everything that touches a network does so in namespaces of its own.

GO       ?= go
# A release is 0.1.0; a build of another commit has the commit's hash behind it.
VERSION  ?= 0.1.0$(shell git describe --tags --exact-match >/dev/null 2>&1 || git describe --always --dirty --exclude '*' 2>/dev/null | sed 's/^/+/')
COMMANDS := $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))
PKG      ?= ./...
FUZZTIME ?= 30s
# For the tests of one package.
TIMEOUT  ?= 20m
# How many packages are tested at the same time: mostly they wait.
PACKAGES ?= $(shell expr 2 \* $$(nproc))

# The race detector needs a C compiler; everything else is built without one.
RACE     := $(shell command -v $$($(GO) env CC | cut -d' ' -f1) >/dev/null 2>&1 && echo -race)
ISOLATE  := bin/tools/isolate
TAGS     := $(shell scripts/tags.sh shipped)

.PHONY: build demo test e2e e2e-vm bench fuzz lint clean tools isolate modules programs

build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '-s -w -X main.version=$(VERSION)' \
		-o bin/ $(addprefix ./cmd/,$(COMMANDS))

demo: build isolate
	$(ISOLATE) bin/calico-lab demo

# -count=1: Go's cache doesn't know the kernel, which tests depend on.
test: programs build isolate modules tools
ifeq ($(RACE),)
	@echo 'test: no C compiler ($(shell $(GO) env CC)): running without the race detector'
endif
	CALICO_BIN_DIR="$(CURDIR)/bin" PATH="$$PATH:/usr/sbin:/sbin:$(CURDIR)/bin/tools" GORACE='suppressions="$(CURDIR)/scripts/race-suppressions.txt"' \
		CGO_ENABLED=$(if $(RACE),1,0) $(ISOLATE) $(GO) test $(RACE) -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(PKG)

e2e: build isolate modules tools
	CALICO_BIN_DIR="$(CURDIR)/bin" PATH="$(CURDIR)/bin/tools:$$PATH" $(ISOLATE) $(GO) test -tags e2e -count=1 -timeout $(TIMEOUT) $(E2EFLAGS) ./test/e2e/... ./pkg/bgp

# Tests of what this machine's kernel may lack, such as IPIP, in an emulated machine with Debian's kernel. VMFLAGS=-run=IPIP runs a part.
e2e-vm: build modules
	scripts/vmkernel.sh bin/vm/kernel
	rm -f bin/vm/*.test
	CGO_ENABLED=0 $(GO) test -c -trimpath -tags e2evm,$(TAGS) -o bin/vm/ ./pkg/kernel/...
	CGO_ENABLED=0 $(GO) test -c -trimpath -tags e2evm,$(TAGS) -o bin/vm/guest.test ./test/vm/guest
	$(GO) run ./test/vm $(VMFLAGS) bin/vm/*.test

bench: build isolate modules tools
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
# etcdctl is pinned there too: scripts/programs.sh builds it where no package brings it.
tools:
	CGO_ENABLED=0 $(GO) build -C tools -trimpath -buildvcs=false -ldflags '-s -w' -o ../bin/tools/ \
		$$($(GO) list -C tools tool | grep -v /etcdctl/)

isolate:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o $(ISOLATE) ./scripts/isolate

# Fetches the modules of the tests: there is no network inside the namespaces.
modules:
	@$(GO) list -tags '$(shell scripts/tags.sh)' -deps -test ./... >/dev/null
