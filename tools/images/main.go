// SPDX-License-Identifier: Apache-2.0

// Command images makes the container images of the release, without a container engine: static binaries on nothing, for
// amd64 and arm64. `make images` runs it.
//
// For each image there is a tar per architecture, for `ctr -n k8s.io images import` and `docker load`, and one OCI layout
// with both architectures, for `crane push`, `skopeo copy oci:` and `oras copy --from-oci-layout`. The same sources make the
// same bytes.
package main

import (
	"context"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "images: %v\n", err)
		os.Exit(1)
	}
}

// A recipe is what an image is made of.
type recipe struct {
	name   string // repository, as in calico/<name>
	dir    string // module whose packages it holds, from the repository's root
	binary []binary
	run    []string // what runs where nobody says otherwise
}

type binary struct{ name, pkg string }

// recipes returns the images: ours with every command that belongs on a cluster, and etcd for clusters that have none.
func recipes(root string) ([]recipe, error) {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil || len(mains) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no commands in %s/cmd: name the repository's root with -root", root))
	}
	calico := recipe{name: "calico", dir: root, run: []string{"/calico-node"}}
	for _, m := range mains {
		name := filepath.Base(filepath.Dir(m))
		if name == "calico-lab" {
			continue // makes networks of its own on one machine
		}
		calico.binary = append(calico.binary, binary{name, "./cmd/" + name})
	}
	etcd := recipe{
		name: "etcd", dir: filepath.Join(root, "tools"), run: []string{"/etcd"},
		binary: []binary{{"etcd", "go.etcd.io/etcd/server/v3"}, {"etcdctl", "go.etcd.io/etcd/etcdctl/v3"}, {"etcdutl", "go.etcd.io/etcd/etcdutl/v3"}},
	}
	return []recipe{calico, etcd}, nil
}

// options are what the flags say.
type options struct {
	root, out, version, tag, tags string
	repository                    string
	created                       time.Time
	arch, only                    []string
}

func parse(args []string) (options, error) {
	o := options{}
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	fs.StringVar(&o.root, "root", "..", "the repository")
	fs.StringVar(&o.out, "out", "../bin/images", "where the images go")
	fs.StringVar(&o.version, "version", "", "what the binaries say their version is")
	fs.StringVar(&o.tag, "tag", "", "tag of the images")
	fs.StringVar(&o.tags, "build-tags", "", "build tags of our own binaries")
	fs.StringVar(&o.repository, "repository", "calico", "what the images' names begin with, a registry included")
	created := fs.Int64("created", 0, "when the images were made, in seconds since 1970: the commit's time, so that the same sources make the same image")
	arch := fs.String("arch", "amd64,arm64", "architectures")
	only := fs.String("only", "", "make these images alone: calico, etcd")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.version == "" || o.tag == "" {
		return o, errors.New("-version and -tag are required: run make images")
	}
	o.created = time.Unix(*created, 0).UTC()
	split := func(r rune) bool { return r == ',' || r == ' ' }
	o.arch, o.only = strings.FieldsFunc(*arch, split), strings.FieldsFunc(*only, split)
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	all, err := recipes(o.root)
	if err != nil {
		return err
	}
	for _, r := range all {
		if len(o.only) > 0 && !slices.Contains(o.only, r.name) {
			continue
		}
		images := map[string]v1.Image{}
		for _, arch := range o.arch {
			binaries, err := build(ctx, o, r, arch)
			if err != nil {
				return fmt.Errorf("build the binaries of %s for %s: %w", r.name, arch, err)
			}
			if err := describe(ctx, r, arch, o.version, binaries); err != nil {
				return fmt.Errorf("say what %s for %s is made of: %w", r.name, arch, err)
			}
			if images[arch], err = assemble(o, r, arch, binaries); err != nil {
				return fmt.Errorf("image %s for %s: %w", r.name, arch, err)
			}
		}
		if err := write(o, r, images); err != nil {
			return fmt.Errorf("write image %s: %w", r.name, err)
		}
	}
	return nil
}

// build compiles an image's binaries and returns where they are.
func build(ctx context.Context, o options, r recipe, arch string) (string, error) {
	out, err := filepath.Abs(filepath.Join(o.out, "rootfs", r.name+"-"+arch))
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(out); err != nil {
		return "", err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, runtime.NumCPU()/2)) // each compiles in parallel itself, and shares most packages with the others
	for _, b := range r.binary {
		g.Go(func() error {
			cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", o.tags,
				"-ldflags", "-s -w -X main.version="+o.version, "-o", filepath.Join(out, b.name), b.pkg)
			cmd.Dir, cmd.Stderr = r.dir, os.Stderr
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
			return errors.Join(cmd.Run(), runsAlone(filepath.Join(out, b.name), arch))
		})
	}
	return out, g.Wait()
}

// runsAlone says why a binary would not run on nothing but a kernel of an architecture.
func runsAlone(path, arch string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
		return fmt.Errorf("%s is for %v, not for %s: make images for amd64 and arm64 alone", path, f.Machine, arch)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC }) {
		return fmt.Errorf("%s is not static: build it without cgo and -buildmode", path)
	}
	return nil
}
