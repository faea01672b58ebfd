// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// servers are what would serve without bounds, and where that is made.
var servers = map[string][]string{
	"http.Server":         {"pkg/server/", "pkg/lab/", "test/"},
	"http.Serve":          {},
	"http.ListenAndServe": {},
	"grpc.NewServer":      {"pkg/nsmgrpc/server.go", "test/"},
}

// TestServers: every server is made where its connections, requests and answers are bounded.
func TestServers(t *testing.T) {
	sources(t, func(path string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			var made ast.Expr
			switch n := n.(type) {
			case *ast.CompositeLit:
				made = n.Type
			case *ast.CallExpr:
				made = n.Fun
			}
			sel, ok := made.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, _ := sel.X.(*ast.Ident)
			if pkg == nil {
				return true
			}
			places, is := servers[pkg.Name+"."+sel.Sel.Name]
			for _, place := range places {
				is = is && !strings.HasPrefix(path, place)
			}
			if is {
				t.Errorf("%s: %s.%s: use pkg/server, which bounds what clients cost", fset.Position(n.Pos()), pkg.Name, sel.Sel.Name)
			}
			return true
		})
	})
}
