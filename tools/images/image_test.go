// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestImage writes an image, and reads back what an engine would.
func TestImage(t *testing.T) {
	binaries := t.TempDir()
	if err := os.WriteFile(filepath.Join(binaries, "calico"), []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{noticeFile, billFile} {
		if err := os.WriteFile(filepath.Join(binaries, name), []byte("of others"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options{root: "../..", out: t.TempDir(), version: "1.2.3+abc", tag: "1.2.3", repository: "registry.test/calico", created: time.Unix(1, 0).UTC(), arch: []string{"amd64", "arm64"}}
	r := recipe{name: "calico", binary: []binary{{"calico", "./cmd/calico"}}, run: []string{"/calico"}}
	images := map[string]v1.Image{}
	for _, arch := range o.arch {
		image, err := assemble(o, r, arch, binaries)
		if err != nil {
			t.Fatal(err)
		}
		again, err := assemble(o, r, arch, binaries)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := digest(t, image), digest(t, again); a != b {
			t.Errorf("%s: the same sources made %s and %s", arch, a, b)
		}
		images[arch] = image
	}
	if err := write(o, r, images); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.test/calico/calico:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range o.arch {
		image, err := tarball.ImageFromPath(filepath.Join(o.out, "calico-"+arch+".tar"), &tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(image); err != nil {
			t.Errorf("%s: %v", arch, err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != arch || config.Config.User != nobody || !cmp.Equal(config.Config.Cmd, r.run) {
			t.Errorf("%s: config %+v", arch, config)
		}
		checkFiles(t, image)
	}
	l, err := layout.FromPath(filepath.Join(o.out, "oci", "calico"))
	if err != nil {
		t.Fatal(err)
	}
	index, err := l.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
}

// checkFiles compares the files of an image with what belongs there.
func checkFiles(t *testing.T, image v1.Image) {
	t.Helper()
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	modes := map[string]int64{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Name {
		case "calico":
			if !bytes.Equal(data, []byte("a program")) {
				t.Errorf("calico holds %q", data)
			}
		case "etc/ssl/certs/ca-certificates.crt":
			if !x509.NewCertPool().AppendCertsFromPEM(data) {
				t.Error("no authority in ca-certificates.crt")
			}
		}
	}
	want := map[string]int64{
		"etc": 0o755, "etc/ssl": 0o755, "etc/ssl/certs": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644,
		"LICENSE": 0o644, "tmp": 0o1777, "calico": 0o755, noticeFile: 0o644, billFile: 0o644,
	}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func digest(t *testing.T, image v1.Image) string {
	t.Helper()
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// TestRecipes has every command of ours in the image but the lab.
func TestRecipes(t *testing.T) {
	all, err := recipes("../..")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range all[0].binary {
		names = append(names, b.name)
	}
	for _, want := range []string{"calico", "calico-ipam", "calico-node"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
	if _, err := recipes(t.TempDir()); err == nil {
		t.Error("no error where there is no command")
	}
}

// TestRunsAlone refuses what would not run in an image.
func TestRunsAlone(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func(name string, env ...string) string {
		t.Helper()
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), source)
		cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return filepath.Join(dir, name)
	}
	arm, amd := build("arm64", "GOARCH=arm64"), build("amd64", "GOARCH=amd64")
	dynamic := build("pie", "GOARCH=amd64", "GOFLAGS=-buildmode=pie")
	for _, test := range []struct{ path, arch, want string }{
		{arm, "arm64", ""}, {amd, "amd64", ""}, {arm, "amd64", "EM_AARCH64"}, {amd, "riscv64", "EM_X86_64"}, {dynamic, "amd64", "not static"}, {source, "amd64", "bad magic"},
	} {
		if err := runsAlone(test.path, test.arch); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s for %s: %v, want %q", test.path, test.arch, err, test.want)
		}
	}
}

// TestDockerfile has the Dockerfile make what the recipes say: by make images itself, for each image a stage that runs the same.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, release, _ := strings.Cut(string(makefile), "RELEASE  := ")
	release, _, _ = strings.Cut(release, "\n")
	stages, name := map[string][]string{}, ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "FROM":
			name = words[len(words)-1]
			if slices.Contains(words, "base") && name != "base" {
				stages[name] = slices.Clone(stages["base"])
			}
		default:
			stages[name] = append(stages[name], strings.Join(words, " "))
		}
	}
	want := []string{"make images VERSION=\"$VERSION\" IMAGEFLAGS=\"-arch $TARGETARCH\" && "}
	all, err := recipes("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		stage := strings.Join(stages[r.name], "\n") + "\n"
		for _, step := range []string{"USER " + nobody, "ENV PATH=/", "WORKDIR /", "COPY LICENSE /", "COPY --from=build /" + r.name + "/ /", `CMD ["` + r.run[0] + `"]`} {
			if !strings.Contains(stage, step+"\n") {
				t.Errorf("stage %s has no %q:\n%s", r.name, step, stage)
			}
		}
		want = append(want, "bin/images/rootfs/"+r.name+"-$TARGETARCH")
	}
	build := strings.Join(stages["build"], "\n")
	for _, step := range append(want, "ARG VERSION="+release) {
		if !strings.Contains(build, step) {
			t.Errorf("stage build has no %q:\n%s", step, build)
		}
	}
}

// TestDescribe names the modules of this very program, with their licences, and the same twice.
func TestDescribe(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var before []byte
	for range 2 {
		dir := t.TempDir()
		if err := os.Symlink(own, filepath.Join(dir, "calico")); err != nil {
			t.Fatal(err)
		}
		r := recipe{name: "calico", dir: ".", binary: []binary{{"calico", "./cmd/calico"}}}
		if err := describe(t.Context(), r, "arm64", "1.2.3", dir); err != nil {
			t.Fatal(err)
		}
		bill, err := os.ReadFile(filepath.Join(dir, billFile))
		if err != nil {
			t.Fatal(err)
		}
		notices, err := os.ReadFile(filepath.Join(dir, noticeFile))
		if err != nil {
			t.Fatal(err)
		}
		var read cdx.BOM
		if err := cdx.NewBOMDecoder(bytes.NewReader(bill), cdx.BOMFileFormatJSON).Decode(&read); err != nil {
			t.Fatal(err)
		}
		if read.Metadata.Component.Version != "1.2.3" || !slices.ContainsFunc(*read.Components, func(c cdx.Component) bool {
			return c.Name == "golang.org/x/sync" && strings.HasPrefix(c.PackageURL, "pkg:golang/golang.org/x/sync@v") && strings.HasSuffix(c.PackageURL, "?goarch=arm64&goos=linux")
		}) {
			t.Errorf("%s", bill)
		}
		for _, want := range []string{"the Go programming language\n", "github.com/google/go-containerregistry v", "Redistribution and use in source and binary forms"} {
			if !strings.Contains(string(notices), want) {
				t.Errorf("the notices lack %q", want)
			}
		}
		both := slices.Concat(bill, notices)
		if before != nil && !bytes.Equal(both, before) {
			t.Error("another text for the same binary")
		}
		before = both
	}
}
