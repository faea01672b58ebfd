// SPDX-License-Identifier: Apache-2.0

// Package image makes container images for tests, in the format of `docker save`
// (https://github.com/moby/docker-image-spec/blob/main/v1.2.md#combined-image-json--filesystem-changeset-format).
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// An Image is an image with one layer.
type Image struct {
	Name       string // with its tag
	Entrypoint []string
	Cmd        []string // arguments if the container has none
	Env        []string
	Files      []File
}

// A File is an entry of a layer: a directory if the name ends with a slash, a symbolic link if Link is set.
type File struct {
	Name, Link string
	Data       []byte
	Mode       int64
}

// Busybox is the path of Debian's busybox-static.
const Busybox = "/bin/busybox"

// BusyboxFiles returns a root file system with busybox and links to it.
func BusyboxFiles(applets ...string) ([]File, error) {
	bin, err := os.ReadFile(Busybox)
	if err != nil {
		return nil, fmt.Errorf("read busybox (Debian's package busybox-static): %w", err)
	}
	files := []File{
		{Name: "bin/", Mode: 0o755}, {Name: "tmp/", Mode: 0o777}, {Name: "www/", Mode: 0o755},
		{Name: "bin/busybox", Data: bin, Mode: 0o755},
	}
	for _, a := range applets {
		files = append(files, File{Name: "bin/" + a, Link: "busybox", Mode: 0o777})
	}
	return files, nil
}

// Save returns a tar of images.
func Save(images ...Image) ([]byte, error) {
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var (
		files    []File
		manifest []entry
		saved    = map[string]bool{}
	)
	for _, image := range images {
		layer, err := archive(image.Files)
		if err != nil {
			return nil, err
		}
		config, err := image.config(layer)
		if err != nil {
			return nil, err
		}
		e := entry{Config: digest(config) + ".json", RepoTags: []string{image.Name}, Layers: []string{digest(layer) + ".tar"}}
		files = append(files, File{Name: e.Config, Data: config, Mode: 0o644})
		if path := e.Layers[0]; !saved[path] {
			saved[path] = true
			files = append(files, File{Name: path, Data: layer, Mode: 0o644})
		}
		manifest = append(manifest, e)
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	return archive(append(files, File{Name: "manifest.json", Data: data, Mode: 0o644}))
}

func (i Image) config(layer []byte) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": i.Entrypoint, "Cmd": i.Cmd, "Env": i.Env},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
}

func archive(files []File) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Linkname: f.Link, Size: int64(len(f.Data)), Mode: f.Mode, Typeflag: tar.TypeReg}
		switch {
		case f.Link != "":
			h.Typeflag = tar.TypeSymlink
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// digest returns the hexadecimal SHA-256 of data.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
