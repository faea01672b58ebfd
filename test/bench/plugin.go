// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/calico-go/calico/test/lab"
)

// plugin is one contender: a main plugin with its IPAM, as a runtime runs it.
type plugin struct {
	name string
	bin  string // executable, in a folder that holds its IPAM plugin too
	conf []byte // network configuration on stdin
	env  []string
}

// sample is what one exec of a plugin cost.
type sample struct {
	wall, cpu time.Duration
	rss       int64 // bytes, of the largest process of the call
}

// exec runs one verb in the host's namespace for one container. The times are
// of the whole process, its own children included (getrusage(2), RUSAGE_CHILDREN
// of what was waited for).
func (p plugin) exec(host lab.Namespace, command, container, netns string) (sample, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(p.bin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(p.conf), &stdout, &stderr
	cmd.Env = append([]string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"CNI_COMMAND=" + command,
		"CNI_CONTAINERID=" + container,
		"CNI_NETNS=" + netns,
		"CNI_IFNAME=eth0",
		"CNI_PATH=" + filepath.Dir(p.bin),
	}, p.env...)
	var begin time.Time
	err := host.Do(func() error {
		begin = time.Now()
		return cmd.Start()
	})
	if err != nil {
		return sample{}, fmt.Errorf("start %s: %w", p.bin, err)
	}
	err = cmd.Wait()
	wall := time.Since(begin)
	if err != nil {
		return sample{}, fmt.Errorf("%s %s of %s: %w\n%s%s", p.name, command, container, err, stdout.Bytes(), stderr.Bytes())
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return sample{}, fmt.Errorf("%s: no resource usage of the process", p.name)
	}
	return sample{
		wall: wall,
		cpu:  cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		rss:  usage.Maxrss << 10,
	}, nil
}
