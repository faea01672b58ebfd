// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/lab/image"
)

// Images of every cluster. No registry serves their names.
const (
	PauseImage = "calico.test/pause:1"
	// Agnhost is Kubernetes' own program for network tests, with a shell and a few tools.
	Agnhost = "calico.test/e2e/agnhost:2.56"
)

// bash runs the commands of a few upstream pods with the available shell. If the kernel has no SCTP, their servers end
// at once; their containers stay.
const bash = `#!/bin/sh
case "$2" in
*porter) sh "$@" || exec /agnhost pause ;;
*) exec sh "$@" ;;
esac
`

// testImages writes a tar of both images and returns its path.
func (c *Cluster) testImages() string {
	c.tb.Helper()
	read := func(name string) []byte {
		c.tb.Helper()
		data, err := os.ReadFile(filepath.Join(c.bin, name))
		if err != nil {
			c.tb.Fatal(err)
		}
		return data
	}
	files, err := image.BusyboxFiles("cat", "echo", "hostname", "ip", "ls", "nc", "ping", "sh", "sleep", "true")
	if err != nil {
		c.tb.Fatal(err)
	}
	data, err := image.Save(
		image.Image{
			Name: PauseImage, Entrypoint: []string{"/pause"},
			Files: []image.File{{Name: "pause", Data: read("pause"), Mode: 0o755}},
		},
		image.Image{
			Name: Agnhost, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: []string{"PATH=/bin"},
			Files: append(files, image.File{Name: "agnhost", Data: read("agnhost"), Mode: 0o755}, image.File{Name: "bin/bash", Data: []byte(bash), Mode: 0o755}),
		},
	)
	if err != nil {
		c.tb.Fatal(err)
	}
	return c.write("images.tar", string(data))
}
