// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// vague names don't say what a package is for.
var vague = []string{"util", "utils", "common", "helpers", "helper", "types", "misc", "base", "shared"}

// sources parses every Go file of the repository, whatever its build tags.
func sources(t *testing.T, each func(path string, f *ast.File, fset *token.FileSet)) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		each(path, f, fset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFiles(t *testing.T) {
	const spdx = "// SPDX-License-Identifier: Apache-2.0"
	documented := map[string]bool{}
	sources(t, func(path string, f *ast.File, fset *token.FileSet) {
		if len(f.Comments) == 0 || f.Comments[0].List[0].Text != spdx || fset.Position(f.Comments[0].Pos()).Line != 1 {
			t.Errorf("%s: the first line must be %q", path, spdx)
		}
		dir := filepath.Dir(path)
		if slices.Contains(vague, f.Name.Name) {
			t.Errorf("%s: package %s: name it after what it is for", path, f.Name.Name)
		}
		documented[dir] = documented[dir] || f.Doc != nil
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if fn.Recv == nil && fn.Name.Name == "init" && !ast.IsGenerated(f) {
				t.Errorf("%s: func init: what a package needs is passed to it", fset.Position(fn.Pos()))
			}
			if path != "test/long/long.go" { // what FULL=1 runs
				skips(t, fn, fset)
			}
		}
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no file has a package comment", dir)
		}
	}
}

// skips reports tests that skip: a test that did not run looks like one that passed.
func skips(t *testing.T, fn *ast.FuncDecl, fset *token.FileSet) {
	t.Helper()
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && slices.Contains([]string{"t", "b", "tb", "f"}, x.Name) {
			t.Errorf("%s: %s.%s: say what is missing and fail", fset.Position(call.Pos()), x.Name, sel.Sel.Name)
		}
		return true
	})
}
