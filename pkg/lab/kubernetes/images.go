// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/lab/image"
)

// Images that every cluster has. They have names that no registry serves.
const (
	PauseImage = "calico.test/pause:1"
	// Agnhost is Kubernetes' own program for tests of networks, with a shell and a few tools beside it.
	Agnhost = "calico.test/e2e/agnhost:2.56"
)

// bash is what a few of upstream's pods run: commands by the shell that there is. Where the kernel has no SCTP its servers end at
// once; their containers stay.
const bash = `#!/bin/sh
case "$2" in
*porter) sh "$@" || exec /agnhost pause ;;
*) exec sh "$@" ;;
esac
`

// testImages writes a tar of both and returns its path.
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
