// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user where a manifest names no other: only the agent needs 0, and says so.
const nobody = "65532:65532"

// A file of a layer; a directory where it has no content.
type file struct {
	path    string
	mode    int64
	content []byte
}

// assemble makes the image of one architecture: a layer of what any image needs, and one of each binary, so that a node
// that has the last release fetches what has changed. The last has what describe has written.
func assemble(o options, r recipe, arch, binaries string) (v1.Image, error) {
	licence, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	layers := [][]file{{
		{"etc", 0o755, nil}, {"etc/ssl", 0o755, nil}, {"etc/ssl/certs", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots()},
		{"LICENSE", 0o644, licence},
		{"tmp", 0o1777, nil},
	}}
	for _, b := range r.binary {
		content, err := os.ReadFile(filepath.Join(binaries, b.name))
		if err != nil {
			return nil, err
		}
		layers = append(layers, []file{{b.name, 0o755, content}})
	}
	var about []file
	for _, name := range []string{noticeFile, billFile} {
		content, err := os.ReadFile(filepath.Join(binaries, name))
		if err != nil {
			return nil, err
		}
		about = append(about, file{name, 0o644, content})
	}
	layers = append(layers, about)
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: o.created}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: nobody, Cmd: r.run, Env: []string{"PATH=/"}, WorkingDir: "/",
			Labels: map[string]string{
				"org.opencontainers.image.title":    path.Join(o.repository, r.name),
				"org.opencontainers.image.version":  o.version,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	for _, files := range layers {
		if err != nil {
			return nil, err
		}
		var layer v1.Layer
		if layer, err = newLayer(files); err == nil {
			img, err = mutate.Append(img, mutate.Addendum{
				Layer: layer, MediaType: types.OCILayer,
				History: v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "make images", Comment: "/" + files[len(files)-1].path},
			})
		}
	}
	return img, err
}

// newLayer packs files. They belong to root and have no time, so that the same content is the same layer.
func newLayer(files []file) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if f.content == nil {
			h.Typeflag, h.Name = tar.TypeDir, f.path+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// roots are Mozilla's authorities, for an etcd or a registry whose certificate is of the public ones. Those that are trusted
// only under a condition, which a file can't say, are left out.
func roots() []byte {
	var out bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint != nil {
			continue
		}
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}) // a buffer takes everything
	}
	return out.Bytes()
}

// write writes a tar for each architecture, and a layout with all of them.
func write(o options, r recipe, images map[string]v1.Image) error {
	ref, err := name.NewTag(path.Join(o.repository, r.name) + ":" + o.tag)
	if err != nil {
		return fmt.Errorf("-repository or -tag: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range o.arch {
		file := filepath.Join(o.out, r.name+"-"+arch+".tar")
		if err := errors.Join(os.MkdirAll(o.out, 0o755), replace(file, func(tmp string) error {
			return tarball.WriteToFile(tmp, ref, images[arch])
		})); err != nil {
			return err
		}
		digest, err := images[arch].Digest()
		if err != nil {
			return err
		}
		fmt.Printf("%s  %s %s  %s\n", digest, ref, arch, file)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        images[arch],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return writeLayout(o, r, ref, index)
}

// writeLayout writes the OCI layout of one image, whose name its index has as annotation.
func writeLayout(o options, r recipe, ref name.Tag, index v1.ImageIndex) error {
	dir := filepath.Join(o.out, "oci", r.name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": o.tag,
		"io.containerd.image.name":          strings.Replace(ref.Name(), name.DefaultRegistry, "docker.io", 1),
	})); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s  %s %s  %s\n", digest, ref, "index", dir)
	return nil
}

// replace writes a file whole or not at all.
func replace(path string, write func(tmp string) error) error {
	tmp := path + ".tmp"
	if err := write(tmp); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return os.Rename(tmp, path)
}
