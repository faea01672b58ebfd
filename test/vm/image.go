// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/calico-go/calico/test/vm/cpio"
)

// programs of Debian that the machine has besides busybox.
func debianPrograms() []string { return []string{"ip", "bridge", "nft", "conntrack"} }

// moduleTrees are the parts of the kernel's modules that the machine has.
func moduleTrees() []string {
	return []string{"net", "lib", "crypto", "arch/x86/crypto", "drivers/net/vxlan", "drivers/net/veth.ko", "drivers/net/dummy.ko", "drivers/net/tun.ko"}
}

// makeImage writes the initial file system and returns its size.
func makeImage(ctx context.Context, o options, tmp, name string) (size int64, err error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	a := cpio.NewWriter(f)
	if err := a.Bytes("etc/protocols", []byte("icmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\n")); err != nil {
		return 0, err
	}
	for _, d := range []string{"dev", "proc", "sys", "run", "tmp", "bin", "sbin"} {
		if err := a.Dir(d); err != nil {
			return 0, err
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return 0, fmt.Errorf("%w: install busybox-static", err)
	}
	if err := errors.Join(a.File("bin/busybox", busybox), a.Bytes("init", []byte(initScript(o)))); err != nil {
		return 0, err
	}
	for _, p := range debianPrograms() {
		if err := addDynamic(ctx, a, p); err != nil {
			return 0, err
		}
	}
	for _, p := range []string{"calico", "calico-ipam", "calico-node", "calico-lab"} {
		if err := a.File("calico/"+p, filepath.Join(o.programs, p)); err != nil {
			return 0, err
		}
	}
	for _, t := range o.tests {
		if err := a.File("tests/"+filepath.Base(t), t); err != nil {
			return 0, err
		}
	}
	if err := addModules(ctx, a, filepath.Join(o.kernel, "lib/modules"), tmp); err != nil {
		return 0, err
	}
	return a.Size(), a.Close()
}

// addDynamic adds a program with the libraries that it is linked to.
func addDynamic(ctx context.Context, a *cpio.Writer, program string) error {
	source, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "ldd", source).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", source, err)
	}
	for line := range strings.Lines(string(out)) {
		for _, f := range strings.Fields(line) {
			if lib := strings.TrimPrefix(f, "/"); lib != f {
				if err := a.File(lib, f); err != nil {
					return err
				}
			}
		}
	}
	return a.File("bin/"+program, source)
}

// addModules adds the modules with the tables by which the kernel's requests find them.
func addModules(ctx context.Context, a *cpio.Writer, source, tmp string) error {
	versions, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	if len(versions) != 1 {
		return fmt.Errorf("%s has %d versions of modules: want one", source, len(versions))
	}
	version := versions[0].Name()
	root := filepath.Join(tmp, "root")
	copied := filepath.Join(root, "lib/modules", version)
	for _, t := range moduleTrees() {
		from, to := filepath.Join(source, version, "kernel", t), filepath.Join(copied, "kernel", t)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "cp", "-r", from, to).CombinedOutput(); err != nil {
			return fmt.Errorf("copy modules: %w: %s", err, out)
		}
	}
	for _, table := range []string{"modules.builtin", "modules.order"} {
		if out, err := exec.CommandContext(ctx, "cp", filepath.Join(source, version, table), copied).CombinedOutput(); err != nil {
			return fmt.Errorf("copy modules: %w: %s", err, out)
		}
	}
	if out, err := exec.CommandContext(ctx, "busybox", "depmod", "-b", root, version).CombinedOutput(); err != nil {
		return fmt.Errorf("depmod: %w: %s", err, out)
	}
	return a.Tree(path.Join("lib/modules", version), copied)
}
