// SPDX-License-Identifier: Apache-2.0

// Package calico_test checks the repository's own rules: which package may import which, what every file has, and
// that the documents agree with the code.
package calico_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/calico-go/calico/"

// A layer is a package's place in the import order. A package imports only from the layers that mayImport lists.
type layer string

const (
	layerPure   layer = "pure"
	layerConf   layer = "netconf"
	layerEdge   layer = "edge"
	layerDaemon layer = "daemon"
	layerShell  layer = "shell"
	layerMain   layer = "main"
	layerLab    layer = "lab"
	layerTest   layer = "test"
	layerWire   layer = "wire"
	layerBase   layer = "base"
)

// packages are those of each layer; a new package must be given its place here.
var packages = map[layer]string{
	layerMain: `
		cmd/calico cmd/calico-classic cmd/calico-controllers cmd/calico-install cmd/calico-ipam cmd/calico-lab cmd/calico-node cmd/calico-nsm cmd/calicoctl
		cmd/nsmctl scripts/isolate
	`,
	layerLab: "pkg/lab pkg/lab/eventually pkg/lab/image pkg/lab/inflight pkg/lab/kubernetes pkg/lab/member pkg/lab/pki pkg/lab/ports pkg/lab/taps",
	layerShell: `
		pkg/agent pkg/agent/availability pkg/agent/conflist pkg/agent/connections pkg/agent/dhcpd pkg/agent/etcdguard pkg/agent/firewall pkg/agent/forward
		pkg/agent/identity pkg/agent/leftovers pkg/agent/nodestatus pkg/agent/params pkg/agent/pods pkg/agent/probe pkg/agent/reentry pkg/agent/router
		pkg/agent/status pkg/agent/workload pkg/classicd pkg/client pkg/cni pkg/cni/addresses pkg/cni/attach pkg/cni/delegate pkg/cni/gc pkg/cni/protocol pkg/controllers
		pkg/controllers/availability pkg/controllers/collector pkg/controllers/custom pkg/controllers/endpoints pkg/controllers/fenced pkg/controllers/invalid
		pkg/controllers/owned pkg/controllers/writer pkg/ctl pkg/ctl/connectivity pkg/ctl/datastore pkg/ctl/diags pkg/ctl/doctor pkg/ctl/explain pkg/ctl/ipam pkg/ctl/node pkg/ctl/status pkg/ctl/output
		pkg/ctl/resources pkg/ctl/session pkg/installer pkg/installer/bootstrap pkg/nodecert pkg/nsmanager pkg/nsmclient
	`,
	layerDaemon: `
		pkg/daemon/health pkg/daemon/logfile pkg/daemon/mailbox pkg/daemon/metrics pkg/daemon/problems pkg/daemon/reconcile pkg/daemon/run pkg/daemon/runlock
		pkg/daemon/serving pkg/daemon/statefile
	`,
	layerEdge: `
		pkg/bgp pkg/dhcpsock pkg/gate pkg/kernel/conntrack pkg/kernel/crossconnect pkg/kernel/fabric pkg/kernel/hostnet pkg/kernel/hostpath
		pkg/kernel/killpoint pkg/kernel/legacy pkg/kernel/link pkg/kernel/pod pkg/kernel/rtnl pkg/kube pkg/kube/leader pkg/nft pkg/nft/beside pkg/nft/guard
		pkg/nft/nfnl pkg/nsmgrpc pkg/store pkg/zmq
	`,
	layerConf: "netconf",
	layerPure: `
		pkg/agent/board pkg/agent/debugstate pkg/classic pkg/classic/source pkg/dhcp pkg/explain pkg/garbage pkg/ipam pkg/ipam/invariants pkg/ipam/usage
		pkg/kubepolicy pkg/model pkg/nft/fate pkg/nft/render pkg/nft/table pkg/nsm pkg/ownership pkg/plan pkg/policy pkg/resource pkg/selector
	`,
	layerWire: "api/nsm",
	layerBase: "pkg/logopen pkg/retry pkg/server",
	layerTest: `
		test/bench test/bench/peak test/chaos test/classic test/differential test/doubles test/e2e test/etcd test/firewall test/keeper test/long
		test/metricspage test/netns test/nsm test/pods test/probe test/routing test/scale test/vm test/vm/cpio test/vm/guest test/zmqpeer
	`,
}

// layers are the packages' own.
var layers = func() map[string]layer {
	all := map[string]layer{}
	for l, list := range packages {
		for p := range strings.FieldsSeq(list) {
			all[p] = l
		}
	}
	return all
}()

// mayImport is the direction: what isn't here is forbidden. A daemon's package is what every program of ours that lives
// shares, whatever it does: it knows no outside system but the one that reads its pages. Edges are not in an edge's list: each is one outside system,
// and what joins two of them is a decision, which belongs in a shell where a test can see it.
var mayImport = map[layer][]layer{
	layerPure:   {layerPure},
	layerConf:   {layerPure},
	layerEdge:   {layerPure, layerWire, layerBase},
	layerDaemon: {layerPure, layerBase},
	layerShell:  {layerPure, layerConf, layerEdge, layerDaemon, layerBase},
	layerLab:    {layerPure, layerConf, layerEdge, layerLab},
	layerMain:   {layerPure, layerConf, layerEdge, layerDaemon, layerShell, layerLab},
	layerTest:   {layerPure, layerWire, layerConf, layerEdge, layerDaemon, layerShell, layerLab, layerTest},
}

// A ban keeps an import path to the packages named. Both are patterns as go's: "x/..." is x and everything below it.
type ban struct {
	path   string
	only   []string
	reason string
}

// bans hold for all files but tests, which need the real thing on the other side.
var bans = []ban{
	{"go.etcd.io/etcd/client/...", []string{"pkg/store", "pkg/lab/...", "test/..."}, "one package knows etcd's client; the rest reads typed entries and commits changes"},
	{"go.etcd.io/etcd/api/...", []string{"pkg/store", "pkg/lab/...", "test/..."}, "etcd's errors and messages are turned into ours in one place"},
	{"go.etcd.io/etcd/server/...", []string{"pkg/lab/...", "test/etcd", "cmd/calico-lab"}, "an embedded etcd is for labs and tests"},
	{"github.com/vishvananda/netlink/...", []string{"pkg/kernel/...", "pkg/lab/...", "test/..."}, "one package tree knows the library and the kernel behind it; the rest says what is desired"},
	{"github.com/vishvananda/netns/...", []string{"pkg/kernel/rtnl", "pkg/lab/...", "test/..."}, "sockets are opened in a namespace in one place; other code enters one by plugins/pkg/ns, which gives the thread back"},
	{module + "pkg/kernel/rtnl", []string{"pkg/kernel/...", "test/..."}, "messages to the kernel are the business of its edge: the rest says what is desired"},
	{module + "pkg/kernel/pod", []string{"pkg/cni/...", "pkg/agent/probe", "test/..."}, "the plugin works in pods: the agent has the host's side, but for the two that it makes to try the path"},
	{module + "pkg/kernel/hostpath", []string{"pkg/agent/...", "test/..."}, "the agent alone programs the host's side of workloads"},
	{module + "pkg/kernel/fabric", []string{"pkg/agent/...", "pkg/installer", "pkg/kernel/hostnet", "pkg/kernel/legacy", "test/..."}, "the agent alone programs routes to other hosts; what uninstalls takes them away, and hostnet must tell them from the host's own"},
	{module + "pkg/nft/table", []string{"pkg/nft/...", "test/..."}, "a table is what the firewall is made of: the rest says what policy is"},
	{module + "pkg/nft/render", []string{"pkg/nft"}, "how policy is rendered is the business of the firewall: the rest says what policy is"},
	{module + "pkg/nft/nfnl", []string{"pkg/nft", "pkg/nft/beside", "pkg/nft/guard"}, "messages to nftables are the business of the firewall, which knows what the kernel holds"},
	{"github.com/google/nftables/...", []string{"pkg/nft/nfnl", "pkg/lab/...", "test/..."}, "one package knows nftables' bytecode; the rest reads and writes policy"},
	{"github.com/mdlayher/netlink/...", []string{"pkg/nft/nfnl", "test/..."}, "google/nftables brings it for nftables' sockets; everything else of netlink is pkg/kernel's"},
	{"github.com/osrg/gobgp/...", []string{"pkg/bgp"}, "one package knows the BGP library; the rest knows neighbours, prefixes and next hops"},
	{"github.com/containernetworking/plugins/pkg/ns", []string{"pkg/kernel/...", "test/..."}, "namespaces are entered where the kernel is programmed"},
	{"github.com/containernetworking/plugins/plugins/...", nil, "the reference plugins are programs that tests run, pinned in tools/go.mod"},
	{"github.com/containernetworking/cni/...", []string{"pkg/cni/...", "netconf", "pkg/lab/...", "test/...", "cmd/calico", "cmd/calico-ipam", "cmd/calico-lab"}, "only the plugins and what calls them need the CNI protocol"},
	{"github.com/go-zeromq/...", []string{"pkg/zmq"}, "one package knows what the library doesn't bound; the rest sends and takes messages"},
	{module + "pkg/zmq", []string{"pkg/classicd", "test/..."}, "the APIs of 2014 alone are spoken over ZeroMQ"},
	{"github.com/prometheus/...", []string{"pkg/daemon/metrics", "pkg/daemon/run", "pkg/agent/...", "pkg/controllers/...", "pkg/classicd", "pkg/nsmanager", "test/metricspage"}, "only a long-running process has metrics; a plugin would pay for the library at each start"},
	{"github.com/insomniacslk/dhcp/...", []string{"pkg/dhcp"}, "one package knows DHCP's messages; the rest passes frames"},
	{"github.com/mdlayher/ndp/...", []string{"pkg/dhcp"}, "one package knows router advertisements; the rest passes frames"},
	{"github.com/mdlayher/packet/...", []string{"pkg/dhcpsock"}, "frames are seen and sent at taps alone"},
	{"golang.org/x/net/bpf", []string{"pkg/dhcpsock"}, "what a socket sees is said where it is opened"},
	{"github.com/spf13/cobra/...", []string{"cmd/calico-lab", "pkg/ctl/..."}, "commands with subcommands are for people; the rest has flags"},
	{"google.golang.org/grpc/...", []string{"pkg/store/...", "pkg/nsmgrpc", "api/nsm", "test/..."}, "status codes are turned into our errors in the store, and where network service connections are asked for; the container runtime is called by tests only"},
	{module + "api/...", []string{"pkg/nsmgrpc", "test/..."}, "messages are turned into values of pkg/nsm where they come and go"},
	{module + "pkg/kernel/crossconnect", []string{"pkg/nsmanager", "pkg/nsmclient", "test/..."}, "the manager of network service connections alone works in pods beside the pod network"},
	{"k8s.io/client-go/...", []string{"pkg/kube/...", "pkg/ctl/output", "test/..."}, "one package knows the Kubernetes API's client; the rest reads the API's types; output takes its jsonpath alone"},
	{"k8s.io/client-go/kubernetes/...", []string{"pkg/kube/leader", "test/..."}, "the typed clients of every kind cost every process of ours that is linked with them"},
	{module + "pkg/lab/...", []string{"pkg/lab/...", "cmd/calico-lab", "test/..."}, "what makes a network to try things in is no part of the network"},
	{"k8s.io/cri-api/...", []string{"test/e2e"}, "only tests call the container runtime"},
	{"go.uber.org/zap/...", []string{"pkg/store", "test/..."}, "logs are slog's; zap is etcd's and is silenced where etcd is"},
	{"log", nil, "a logger is passed in: log/slog"},
	{"io/ioutil", nil, "io and os have it"},
	{"net/http/pprof", nil, "it registers itself in http.DefaultServeMux by being imported"},
	{"expvar", nil, "it registers itself in http.DefaultServeMux by being imported"},
	{"unsafe", []string{"api/nsm"}, "memory safety is why this is Go; the code of messages is generated with it"},
}

// testBans hold for test files.
var testBans = []ban{
	{"github.com/stretchr/testify/...", nil, "tests compare with cmp.Diff: a failure shows what differs"},
	{"github.com/onsi/...", nil, "tests are Go's own: tables, subtests, cmp.Diff"},
	{"gotest.tools/...", nil, "tests compare with cmp.Diff: a failure shows what differs"},
}

// pureBans is what a package that only decides must not have.
var pureBans = []ban{
	{"context", nil, "a pure package waits for nothing"},
	{"log/...", nil, "a pure package returns what happened"},
	{"os/...", nil, "a pure package does no I/O"},
	{"net/http/...", nil, "a pure package does no I/O"},
	{"net", []string{"pkg/dhcp"}, "addresses are netip's, but where the library of DHCP wants others; a pure package does no I/O"},
	{"syscall", nil, "a pure package does no I/O"},
	{"golang.org/x/sys/...", nil, "a pure package does no I/O"},
	{"crypto/rand", nil, "randomness is an argument"},
	{"sync/...", nil, "a pure package has no goroutines: the caller owns its values"},
}

// pureMay is what a pure package may import beyond the standard library.
var pureMay = []ban{
	{"go.yaml.in/yaml/v3", []string{"pkg/resource"}, "documents are YAML, and errors in them have a line"},
	{"github.com/evanphx/json-patch/v5", []string{"pkg/resource"}, "patches are those of RFC 6902 and RFC 7386, as values"},
	{"github.com/google/uuid", []string{"pkg/classic/source"}, "UUIDs of names (RFC 9562), as values"},
	{"go4.org/netipx", []string{"pkg/..."}, "sets of addresses, beside net/netip"},
	{"github.com/insomniacslk/dhcp/...", []string{"pkg/dhcp"}, "messages of DHCP, as values"},
	{"github.com/mdlayher/ndp", []string{"pkg/dhcp"}, "messages of neighbour discovery, as values"},
	{"k8s.io/api/...", []string{"pkg/kubepolicy"}, "the objects that it turns into ours are Kubernetes' own types"},
	{"sigs.k8s.io/network-policy-api/...", []string{"pkg/kubepolicy"}, "the objects that it turns into ours are Kubernetes' own types"},
	{"k8s.io/apimachinery/pkg/apis/meta/v1", []string{"pkg/kubepolicy"}, "selectors are Kubernetes' own type"},
	{"k8s.io/apimachinery/pkg/labels", []string{"pkg/kubepolicy"}, "nodes are picked by Kubernetes' own selectors"},
	{"k8s.io/apimachinery/pkg/api/validate/content", []string{"pkg/kubepolicy"}, "what a label can be is Kubernetes' to say"},
	{"k8s.io/utils/net", []string{"pkg/kubepolicy"}, "blocks are read as the API server reads them"},
}

// mayPure says whether a pure package may import a path that isn't the standard library's.
func mayPure(pkg, path string) bool {
	return slices.ContainsFunc(pureMay, func(b ban) bool { return match(b.path, path) && b.broken(pkg, path) == "" })
}

// exceptions of the direction, each with its reason.
var exceptions = map[[2]string]string{
	{"pkg/daemon/run", "pkg/store"}:          "where etcd is, and who asks, is told to every daemon alike",
	{"pkg/agent", "pkg/nodecert"}:            "a host's certificate is kept as a manager of network services keeps its own",
	{"pkg/nsmanager", "pkg/nodecert"}:        "a manager's certificate is kept as the agent keeps its own",
	{"pkg/classicd", "pkg/agent"}:            "Felix is the agent, told by others than etcd",
	{"pkg/ctl/ipam", "pkg/client"}:           "what a resource says is changed as a resource",
	{"pkg/ctl/datastore", "pkg/client"}:      "what changes its owner is a resource",
	{"pkg/ctl/resources", "pkg/client"}:      "the commands on resources are built on what other programs use for the same",
	{"pkg/controllers/custom", "pkg/client"}: "an object of the Kubernetes API is written as the resource that it is",
}

// parts are shells and edges of several packages, each with its reason. A part lies below its shell, which imports it;
// parts may import one another, but for what shared says, and never the shell. An edge is its parts.
var parts = map[string]string{
	"pkg/cni":         "a plugin is one process that does one verb; in rooms, each can be read and tested by itself",
	"pkg/kernel":      "the kernel is one outside system; in parts, a plugin is linked with the one that it needs",
	"pkg/nft":         "nftables is one outside system; in parts, what the kernel is told can be read without what is to be told, and the other way round",
	"pkg/installer":   "calico-install is one binary: what it does on a node, and what it does for a cluster",
	"pkg/daemon":      "what daemons share are small nouns that know one another: what serves reports problems",
	"pkg/controllers": "the controllers are one process, whose goroutines write under one fence; in parts, each can be read and tested by itself",
	"pkg/ctl":         "calicoctl is one program; in parts, each group of commands can be read and tested by itself",
	"pkg/agent":       "the agent is one process, whose goroutines share what they know; in parts, each can be read and tested by itself",
}

// shared are the parts of a whole that its other parts may import, where that isn't all of them.
var shared = map[string][]string{
	"pkg/agent": {"pkg/agent/board", "pkg/agent/debugstate"}, // values; each reconciler can be read, tested and replaced by itself
}

// A listed is what `go list` tells of a package.
type listed struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// buildTags asks for build tags: without an argument for those whose files the rules hold for as well.
func buildTags(t *testing.T, which ...string) string {
	t.Helper()
	out, err := exec.Command("scripts/tags.sh", which...).Output()
	if err != nil {
		t.Fatalf("scripts/tags.sh: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// goList runs `go list -json` and decodes its packages.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,TestImports,XTestImports"}, args...)...)
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr)
	}
	dec, pkgs := json.NewDecoder(strings.NewReader(string(out))), []listed(nil)
	for {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// match says whether an import path is what a pattern names.
func match(pattern, path string) bool {
	tree, ok := strings.CutSuffix(pattern, "/...")
	return path == tree || ok && strings.HasPrefix(path, tree+"/")
}

// broken returns how an import of pkg breaks the ban, or "".
func (b ban) broken(pkg, path string) string {
	if !match(b.path, path) || slices.ContainsFunc(b.only, func(o string) bool { return match(o, pkg) }) {
		return ""
	}
	return fmt.Sprintf("%s imports %s: %s", pkg, path, b.reason)
}

// thirdParty says whether an import path is neither ours nor the standard library's.
func thirdParty(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") && !strings.HasPrefix(path, module)
}

// direction returns how an import of one of our own packages goes the wrong way, or "".
func direction(pkg, path string) string {
	own, ok := strings.CutPrefix(path, module)
	if !ok || exceptions[[2]string{pkg, own}] != "" {
		return ""
	}
	for whole := range parts {
		if match(whole+"/...", pkg) && strings.HasPrefix(own, whole+"/") {
			if known, is := shared[whole]; is && pkg != whole && !slices.Contains(known, own) {
				return fmt.Sprintf("%s imports %s: of %s's parts none knows another: what they give one another is in %s", pkg, own, whole, strings.Join(known, " and "))
			}
			return ""
		}
	}
	from, to := layers[pkg], layers[own]
	if slices.Contains(mayImport[from], to) {
		return ""
	}
	return fmt.Sprintf("%s (%s) imports %s (%s): imports go main → shell → daemon, edge and netconf → pure → standard library", pkg, from, own, to)
}

func TestImports(t *testing.T) {
	for _, p := range goList(t, "-tags", buildTags(t), "./...") {
		pkg, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok {
			continue // the root: this test
		}
		own, ok := layers[pkg]
		if !ok {
			t.Errorf("%s has no layer: give it one in imports_test.go", pkg)
			continue
		}
		rules := bans
		if own == layerPure {
			rules = slices.Concat(bans, pureBans)
		}
		for _, path := range p.Imports {
			if text := direction(pkg, path); text != "" {
				t.Error(text)
			}
			if own == layerPure && thirdParty(path) && !mayPure(pkg, path) {
				t.Errorf("%s imports %s: a pure package is built on the standard library, and what pureMay has", pkg, path)
			}
			for _, b := range rules {
				if text := b.broken(pkg, path); text != "" {
					t.Error(text)
				}
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			for _, b := range testBans {
				if text := b.broken("test of "+pkg, path); text != "" {
					t.Error(text)
				}
			}
		}
	}
}

// TestLayers holds the picture of docs/architecture.md to the layers: a package that has parts stands for them.
func TestLayers(t *testing.T) {
	var want strings.Builder
	for _, l := range []layer{layerMain, layerLab, layerShell, layerDaemon, layerEdge, layerConf, layerPure, layerWire, layerBase} {
		names := map[string]bool{}
		for p := range strings.FieldsSeq(packages[l]) {
			whole := strings.Join(strings.SplitN(p, "/", 3)[:min(2, strings.Count(p, "/")+1)], "/")
			if is, listed := layers[whole]; !listed || is == l {
				names[whole] = true
			}
		}
		line := fmt.Sprintf("%-8s", l)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if len(line)+len(name) > 138 {
				want.WriteString(line + "\n")
				line = strings.Repeat(" ", 8)
			}
			line += " " + name
		}
		want.WriteString(line + "\n")
	}
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, _ := strings.Cut(string(page), "```\n"); !strings.HasPrefix(rest, want.String()+"```") {
		t.Errorf("docs/architecture.md: its first picture is not\n%s", &want)
	}
}

// TestPlugins keeps what is exec'd for every pod small: each package it is linked with is initialised at every start.
func TestPlugins(t *testing.T) {
	heavy := []ban{
		{"github.com/prometheus/...", nil, "metrics of a process that lives for 50 ms are never scraped"},
		{"github.com/spf13/...", nil, "a plugin has no command line"},
		{"go.etcd.io/etcd/server/...", nil, "a plugin is etcd's client"},
		{"go.etcd.io/bbolt/...", nil, "a plugin is etcd's client"},
		{"go.etcd.io/raft/...", nil, "a plugin is etcd's client"},
		{"github.com/insomniacslk/...", nil, "the agent serves DHCP"},
		{"k8s.io/...", nil, "the typed clientset alone needs 8 ms and 12 MB at every start"},
		{"sigs.k8s.io/...", nil, "nothing of Kubernetes' libraries at every start"},
		{module + "pkg/agent/...", nil, "the agent is another process"},
		{module + "pkg/daemon/...", nil, "a plugin lives for 50 ms"},
		{module + "pkg/kernel/hostpath", nil, "the agent keeps the host's side"},
		{module + "pkg/kernel/fabric", nil, "the agent keeps routes to other hosts"},
		{module + "pkg/kernel/hostnet", nil, "the agent reads the host's own network"},
		{module + "pkg/kernel/conntrack", nil, "the agent ends connections"},
		{module + "test/...", nil, "a test's code is never shipped"},
		{module + "pkg/lab/...", nil, "the lab runs plugins"},
		{"testing", nil, "a test's code is never shipped; it registers flags"},
		{"github.com/google/go-cmp/...", nil, "it is for tests and panics where it doesn't understand"},
		{"expvar", nil, "it starts by registering an HTTP handler"},
		{"net/http/pprof", nil, "it starts by registering HTTP handlers"},
		{"html/template", nil, "no page is rendered, but the linker must keep every exported method once a template may call it"},
	}
	shipped := buildTags(t, "shipped")
	for _, cmd := range []string{"cmd/calico", "cmd/calico-ipam"} {
		for _, p := range goList(t, "-deps", "-tags", shipped, "./"+cmd) {
			for _, b := range heavy {
				if text := b.broken(cmd, p.ImportPath); text != "" {
					t.Error(strings.Replace(text, "imports", "is linked with", 1))
				}
			}
		}
	}
}
