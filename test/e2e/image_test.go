// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// Images that the tests make themselves: one layer, busybox. They have names that no registry serves.
const (
	pauseImage = "calico.test/pause:1"
	podImage   = "calico.test/busybox:1"
)

// busybox is where Debian's busybox-static is.
const busybox = "/bin/busybox"

// applets are the commands in the image.
var applets = []string{"cat", "echo", "hostname", "httpd", "ip", "mkdir", "nc", "sh", "sleep"}

// images returns a tar of both images in the format of `docker save`
// (https://github.com/moby/docker-image-spec/blob/main/v1.2.md#combined-image-json--filesystem-changeset-format).
func images() ([]byte, error) {
	layer, err := busyboxLayer()
	if err != nil {
		return nil, err
	}
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var (
		files    = []file{{name: "layer.tar", data: layer, mode: 0o644}}
		manifest []entry
	)
	for name, command := range map[string][]string{
		pauseImage: {"/bin/sleep", "2000000000"},
		podImage:   {"/bin/sh"},
	} {
		config, err := imageConfig(layer, command)
		if err != nil {
			return nil, err
		}
		path := digest(config) + ".json"
		files = append(files, file{name: path, data: config, mode: 0o644})
		manifest = append(manifest, entry{Config: path, RepoTags: []string{name}, Layers: []string{"layer.tar"}})
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	return archive(append(files, file{name: "manifest.json", data: data, mode: 0o644}))
}

// busyboxLayer is a root file system of busybox and what links to it.
func busyboxLayer() ([]byte, error) {
	bin, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("read busybox (Debian's package busybox-static): %w", err)
	}
	files := []file{
		{name: "bin/", mode: 0o755}, {name: "tmp/", mode: 0o777}, {name: "www/", mode: 0o755},
		{name: "bin/busybox", data: bin, mode: 0o755},
	}
	for _, a := range applets {
		files = append(files, file{name: "bin/" + a, link: "busybox", mode: 0o777})
	}
	return archive(files)
}

// imageConfig is an image's JSON.
func imageConfig(layer []byte, command []string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": command, "Env": []string{"PATH=/bin"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
}

// A file is an entry of a tar: a directory where the name ends with a slash, a symbolic link where link is set.
type file struct {
	name, link string
	data       []byte
	mode       int64
}

// archive makes a tar.
func archive(files []file) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Linkname: f.link, Size: int64(len(f.data)), Mode: f.mode, Typeflag: tar.TypeReg}
		switch {
		case f.link != "":
			h.Typeflag = tar.TypeSymlink
		case f.name[len(f.name)-1] == '/':
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// digest is the hexadecimal SHA-256 of data.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
