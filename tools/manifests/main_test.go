// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// TestPinned makes files that name the images of one build.
func TestPinned(t *testing.T) {
	const release = "0.1.0"
	images, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	args := []string{"-dir", "../../k8s-manifests", "-release", release, "-images", images, "-out", out}
	if err := run(args); err == nil || !strings.Contains(err.Error(), "run make images") {
		t.Errorf("without images: %v", err)
	}
	if err := run(args[:6]); err == nil || !strings.Contains(err.Error(), "go together") {
		t.Errorf("without a folder: %v", err)
	}
	index, err := random.Index(16, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"calico", "etcd"} {
		l, err := layout.Write(filepath.Join(images, "oci", name), empty.Index)
		if err == nil {
			err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{"io.containerd.image.name": "registry.test/net/" + name + ":" + release}))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := run(args); err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(out, f.file))
		if err != nil {
			t.Fatal(err)
		}
		all, mine := strings.Count(string(text), "image: "), strings.Count(string(text), "@"+digest.String()+"\n")
		if all == 0 || all != mine || !strings.Contains(string(text), "image: registry.test/net/calico@") {
			t.Errorf("%s: %d images, %d by digest", f.file, all, mine)
		}
	}
	if err := run([]string{"-dir", "../../k8s-manifests", "-release", "0.2.0", "-images", images, "-out", out}); err == nil || !strings.Contains(err.Error(), "not of release 0.2.0") {
		t.Errorf("images of another release: %v", err)
	}
}
