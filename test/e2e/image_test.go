// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import "github.com/calico-go/calico/pkg/lab/image"

// Images that the tests make themselves: one layer, busybox. They have names that no registry serves.
const (
	pauseImage = "calico.test/pause:1"
	podImage   = "calico.test/busybox:1"
)

// images returns a tar of both images.
func images() ([]byte, error) {
	files, err := image.BusyboxFiles("cat", "echo", "hostname", "httpd", "ip", "mkdir", "nc", "sh", "sleep")
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=/bin"}
	return image.Save(
		image.Image{Name: pauseImage, Entrypoint: []string{"/bin/sleep", "2000000000"}, Env: env, Files: files},
		image.Image{Name: podImage, Entrypoint: []string{"/bin/sh"}, Env: env, Files: files},
	)
}
