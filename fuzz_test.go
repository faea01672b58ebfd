// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"cmp"
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// decoders are what turns bytes of others into values, or hands them on as they are: by import path, the beginnings of the names,
// and whole names where these are small. Whoever uses one parses what comes from outside.
var decoders = map[string][]string{
	"bufio":           {"NewReader", "NewScanner"},
	"crypto/tls":      {"X509KeyPair"},
	"crypto/x509":     {"Parse"},
	"encoding/binary": {"Read", "Uint", "Uvarint", "Varint"},
	"encoding/json":   {"NewDecoder", "Unmarshal"},
	"encoding/pem":    {"Decode"},
	"fmt":             {"Fscan", "Sscan"},
	"io":              {"ReadAll"},
	"os":              {"ReadFile"},

	"github.com/containernetworking/cni/pkg/invoke":       {"ExecPluginWithResult", "GetVersionInfo"},
	"github.com/containernetworking/cni/pkg/types/100":    {"GetResult"},
	"github.com/containernetworking/cni/pkg/types/create": {"Create"},
	"github.com/insomniacslk/dhcp/dhcpv4":                 {"FromBytes"},
	"github.com/insomniacslk/dhcp/dhcpv6":                 {"FromBytes", "MessageFromBytes"},
	"github.com/mdlayher/ndp":                             {"ParseMessage"},
	"github.com/osrg/gobgp/v4/pkg/packet/bgp":             {"IPAddrPrefix", "PathAttribute", "PathNLRI"},
	"github.com/vishvananda/netlink":                      {"LinkDeserialize", "NeighDeserialize"},
	"github.com/vishvananda/netlink/nl":                   {"Deserialize", "NativeEndian", "ParseRouteAttr"},
	"go.yaml.in/yaml/v3":                                  {"NewDecoder", "Unmarshal"},
	"google.golang.org/protobuf/encoding/protojson":       {"Unmarshal"},
	"google.golang.org/protobuf/proto":                    {"Unmarshal"},
	"sigs.k8s.io/yaml":                                    {"Unmarshal", "YAMLToJSON"},

	module + "pkg/kernel/rtnl": {"Attributes", "Uint32"},
	module + "pkg/nft/beside":  {"Block"},
	module + "pkg/nft/fate":    {"Of"},
	module + "pkg/nft/nfnl":    {"attr", "attrs", "udata"},
}

// A place is a function of a package, or a method of any of its types, whose name has a dot before it.
type place struct{ dir, name string }

// uses finds what a function uses of other packages, and calls or hands on of its own: a method that isn't another package's by its import
// is taken for the own one's.
func uses(dir string, isTest bool, f *ast.File, fn *ast.FuncDecl, each func(path, name string, pos token.Pos)) {
	imports := map[string]string{}
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		name := filepath.Base(path)
		if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
			name = filepath.Base(filepath.Dir(path))
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = path
	}
	own := func(e ast.Expr) {
		if of, generic := e.(*ast.IndexExpr); generic {
			e = of.X
		}
		switch e := e.(type) {
		case *ast.Ident:
			each(module+dir, e.Name, e.Pos())
		case *ast.SelectorExpr:
			if id, _ := e.X.(*ast.Ident); id == nil || imports[id.Name] == "" && (!isTest || id.Name != "t" && id.Name != "f") { // a test's own
				each(module+dir, "."+e.Sel.Name, e.Pos())
			}
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			own(n.Fun)
			for _, arg := range n.Args { // which may be called
				own(arg)
			}
		case *ast.SelectorExpr:
			root := n.X
			if inner, ok := root.(*ast.SelectorExpr); ok { // binary.BigEndian.Uint16
				root = inner.X
			}
			if id, _ := root.(*ast.Ident); id != nil && imports[id.Name] != "" {
				each(imports[id.Name], n.Sel.Name, n.Pos())
			}
		}
		return true
	})
}

// TestFuzzed: each function that parses what comes from outside is reached by a fuzz target, or has a reason in unfuzzed.
func TestFuzzed(t *testing.T) {
	calls, found := map[place][]place{}, map[place]token.Position{}
	var reach []place
	sources(t, func(path string, f *ast.File, fset *token.FileSet) {
		dir := filepath.Dir(path)
		isTest := strings.HasSuffix(path, "_test.go")
		if strings.HasPrefix(dir, "test/") || strings.HasPrefix(dir+"/", "pkg/lab/") || strings.HasPrefix(dir, "tools") || dir == "." || dir == "api/nsm" {
			return
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			here := place{dir, fn.Name.Name}
			if fn.Recv != nil {
				here.name = "." + here.name
			}
			if isTest && strings.HasPrefix(here.name, "Fuzz") {
				reach = append(reach, here)
			}
			uses(dir, isTest, f, fn, func(path, name string, pos token.Pos) {
				if own, ok := strings.CutPrefix(path, module); ok {
					calls[here] = append(calls[here], place{own, name})
				}
				own := path == module+dir
				is := func(d string) bool {
					return name == d || !own && ast.IsExported(d) && strings.HasPrefix(name, d)
				}
				if !isTest && strings.TrimPrefix(name, ".") != fn.Name.Name && !(own && name == "Block") && slices.ContainsFunc(decoders[path], is) {
					found[here] = fset.Position(pos)
				}
			})
			// Messages come as values already.
			for _, p := range fn.Type.Params.List {
				if star, ok := p.Type.(*ast.StarExpr); ok && !isTest {
					if sel, ok := star.X.(*ast.SelectorExpr); ok {
						if id, ok := sel.X.(*ast.Ident); ok && id.Name == "api" && dir == "pkg/nsmgrpc" {
							found[here] = fset.Position(p.Pos())
						}
					}
				}
			}
		}
	})
	reached := map[place]bool{}
	for len(reach) > 0 {
		at := reach[0]
		if reach = reach[1:]; !reached[at] {
			reached[at] = true
			reach = append(reach, calls[at]...)
		}
	}
	used := map[string]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(found), func(a, b place) int { return cmp.Or(strings.Compare(a.dir, b.dir), strings.Compare(a.name, b.name)) }) {
		if reached[at] {
			continue
		}
		name := at.dir + "." + strings.TrimPrefix(at.name, ".")
		of := name
		if unfuzzed[of] == "" {
			of = at.dir
		}
		if used[of] = true; unfuzzed[of] == "" {
			t.Errorf("%s: %s parses what comes from outside, and no fuzz target reaches it: write one, or say in unfuzzed why none is needed", found[at], name)
		}
	}
	for name := range unfuzzed {
		if !used[name] {
			t.Errorf("%s has a reason to be without a fuzz target, and needs none", name)
		}
	}
}

// unfuzzed are packages, and functions of packages, that need no target, with the reason.
var unfuzzed = map[string]string{
	"cmd/calico-lab":                        "a lab is its user's own, and so are the files and answers that it reads",
	"pkg/agent/conflist":                    "files are compared as bytes; what is read of them is netconf's: FuzzMend, FuzzParse. Certificates are crypto/tls' to read",
	"pkg/agent/forward.readBlocks":          "it keeps what beside.Blocks finds, of which FuzzTell has any",
	"pkg/agent/status.Place":                "the kernel's boot id, which is compared alone",
	"pkg/bgp.newPath":                       "it makes attributes, of addresses that the model has parsed",
	"pkg/bgp.readPassword":                  "one line of a file of root's, which is limited and goes to the kernel as it is",
	"pkg/classicd.read":                     "files as Felix wrote them, which classic reads: FuzzMessages",
	"pkg/controllers/custom.closed":         "what this package has formatted",
	"pkg/cni.checkHostIPv6":                 "the kernel's own number",
	"pkg/cni.findNodeName":                  "the name as the agent wrote it, which model's keys escape: model.FuzzParseKey",
	"pkg/cni.mtu":                           "a number that the agent wrote, read by strconv",
	"pkg/cni/addresses.InterfaceLock":       "a hash of this process's",
	"pkg/cni/delegate.Add":                  "what the plugin printed is read by the CNI library's CreateFromBytes, of whose results FuzzResult has any",
	"pkg/cni/delegate.newest":               "a list of versions, of which those are looked for that are known here",
	"pkg/cni/protocol.ReadConfig":           "it bounds standard input; netconf.FuzzParse has what it holds",
	"pkg/controllers.options":               "the namespace that the kubelet wrote for this pod",
	"pkg/controllers/endpoints.Decide":      "JSON that this process made of an object: kube.FuzzObject",
	"pkg/ctl/connectivity.try":              "what a server answers is limited, and compared",
	"pkg/ctl/ipam.readReport":               "it reads the file for parseReport: FuzzReport",
	"pkg/ctl/doctor.certificate":            "the operator's own certificate, which crypto/x509 reads",
	"pkg/ctl/node":                          "pages of the node's own agent, limited; encoding/json reads them into structs that are printed",
	"pkg/ctl/output":                        "a template of the user's own, and JSON that this process made",
	"pkg/nsm.UnmarshalJSON":                 "files as the manager wrote them: nsmanager.FuzzState",
	"pkg/nsmgrpc.CloseConnection":           "two names, which are looked up alone",
	"pkg/ctl/resources":                     "files go to resource.Decode and resource.Patched as they are: resource.FuzzDecode, FuzzPatch",
	"pkg/ctl/session.readConfig":            "the user's own configuration, by resource.DecodeInto: resource.FuzzPatch",
	"pkg/ctl/session.Page":                  "a page of the agent's is limited and kept as it is; pkg/ctl/node says who reads it",
	"pkg/gate.ask":                          "the agent's answer, by a socket that root alone can make; encoding/json reads it",
	"pkg/gate.exchange":                     "it limits the agent's answer",
	"pkg/gate.parseAnswer":                  "the agent's answer, by a socket that root alone can make; encoding/json reads it",
	"pkg/installer":                         "binaries and scripts are compared as bytes; lists are netconf.IsOurs' to tell: netconf.FuzzParse",
	"pkg/kernel/crossconnect.Scan":          "the kernel's list of mounts: whatever a path is called, the inode counts that it is opened to have",
	"pkg/kernel/hostnet.dropped":            "the kernel's own counters",
	"pkg/kernel/hostpath.mountedNamespaces": "the kernel's list of mounts: whatever a path is called, it is opened and asked for its id",
	"pkg/kernel/rtnl.GetNeigh":              "the kernel's own answer about the neighbour that it was asked for",
	"pkg/kernel/rtnl.ReadSysctl":            "the kernel's own numbers",
	"pkg/nft/beside.drops":                  "it asks fate.Of, as block does: FuzzBlock, fate.FuzzOf",
	"pkg/nft/nfnl.BaseChains":               "attributes are picked by attr, of which FuzzMessages has any",
	"pkg/nft/nfnl.Generation":               "the kernel's own number",
	"pkg/nft/nfnl.Packets":                  "attributes are picked by attr, of which FuzzMessages has any",
	"pkg/nft/nfnl.ReadForeign":              "a rule's name and handle are picked by attr: FuzzMessages; parseForeign reads its expressions: FuzzForeign",
	"pkg/nft/nfnl.ReadRules":                "attributes are picked by attr, of which FuzzMessages has any",
	"pkg/nft/nfnl.ReadTable":                "attributes are picked by attr, of which FuzzMessages has any",
	"pkg/nft/nfnl.readSets":                 "attributes are picked by attr, of which FuzzMessages has any",
	"pkg/nft/nfnl.transact":                 "it counts the messages that this process made",
	"pkg/kube.copied":                       "an object that this process has",
	"pkg/nodecert.ask":                      "a certificate of the API server for this process's own key; crypto/tls reads it",
	"pkg/nodecert.foreign":                  "a file of the authority's, which crypto/x509 reads",
	"pkg/nsmgrpc.CloseRemoteConnection":     "two strings, by which the ledger is asked",
	"pkg/nsmgrpc.MonitorRemoteConnections":  "strings, by which the ledger is asked",
	"pkg/nsmgrpc.RequestEndpointConnection": "strings, which are handed on and sent back",
	"pkg/nsmgrpc.RequestProxyConnection":    "every request is refused",
	"pkg/nsmgrpc.RequestRemoteConnection":   "remoteRequestFrom reads the message: FuzzRemoteRequest",
	"pkg/plan.UnmarshalJSON":                "encoding/json calls it: FuzzState",
	"pkg/resource.readBGPFilter":            "it reads what the model has just written",
	"pkg/store":                             "files of this process's own configuration: certificates, which crypto/tls reads, passwords and tokens, which go to etcd as they are",
}
