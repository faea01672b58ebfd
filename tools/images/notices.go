// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// What says in an image of what it is made, beside its binaries.
const (
	billFile   = "sbom.cdx.json" // CycloneDX, https://cyclonedx.org
	noticeFile = "THIRD-PARTY-NOTICES"
)

// licenceNames are files whose text has to go with what is made of a module.
var licenceNames = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright)([.-].*)?$`)

// describe writes beside an image's binaries which modules they are made of, and these modules' licences.
func describe(ctx context.Context, r recipe, arch, version, dir string) error {
	modules, toolchain, err := modulesOf(r, dir)
	if err != nil {
		return err
	}
	notices, err := noticesOf(ctx, r.dir, modules)
	if err != nil {
		return err
	}
	bill := cdx.NewBOM()
	bill.Metadata = &cdx.Metadata{Component: &cdx.Component{Type: cdx.ComponentTypeContainer, Name: r.name, Version: version}}
	components := []cdx.Component{{Type: cdx.ComponentTypeLibrary, Name: "std", Version: toolchain, PackageURL: "pkg:golang/std@" + strings.TrimPrefix(toolchain, "go")}}
	for _, m := range modules {
		components = append(components, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: fmt.Sprintf("pkg:golang/%s@%s?goarch=%s&goos=linux", m.Path, m.Version, arch)})
	}
	bill.Components = &components
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, billFile), out.Bytes(), 0o644), os.WriteFile(filepath.Join(dir, noticeFile), notices, 0o644))
}

// modulesOf are the modules of others in an image's binaries, in order, and the toolchain that made them.
func modulesOf(r recipe, dir string) (modules []debug.Module, toolchain string, err error) {
	all := map[string]debug.Module{}
	for _, b := range r.binary {
		info, err := buildinfo.ReadFile(filepath.Join(dir, b.name))
		if err != nil {
			return nil, "", err
		}
		toolchain, _, _ = strings.Cut(info.GoVersion, " ")
		for _, m := range info.Deps {
			if m.Replace != nil {
				m.Version = m.Replace.Version
			}
			all[m.Path] = *m
		}
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		modules = append(modules, all[path])
	}
	return modules, toolchain, nil
}

// noticesOf are the licences of Go and of modules, each text once with all that it is of.
func noticesOf(ctx context.Context, dir string, modules []debug.Module) ([]byte, error) {
	args := []string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"} // of these alone: the whole graph, or their times, may have to be fetched
	for _, m := range modules {
		args = append(args, m.Path)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules: %w", err)
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(list)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		dirs[path] = dir
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	of := map[string][]string{} // by text
	add := func(name, dir string) error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("licence of %s: %w", name, err)
		}
		found := false
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenceNames.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			of[string(text)], found = append(of[string(text)], name), true
		}
		if !found {
			return fmt.Errorf("licence of %s: none in %s", name, dir)
		}
		return nil
	}
	err = add("the Go programming language", strings.TrimSpace(string(root)))
	for _, m := range modules {
		err = errors.Join(err, add(m.Path+" "+m.Version, dirs[m.Path]))
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, text := range slices.SortedFunc(maps.Keys(of), func(a, b string) int { return strings.Compare(of[a][0]+a, of[b][0]+b) }) {
		fmt.Fprintf(&out, "%s\n\n%s\n\n%s\n\n", strings.Join(of[text], "\n"), strings.TrimSpace(text), strings.Repeat("-", 80))
	}
	return out.Bytes(), nil
}
