// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What the machine says of its tests on the console.
const (
	markEnd  = "vm-test-ended "    // name and status
	markDone = "vm-tests-are-done" // all ran
)

// initScript is the machine's first process.
func initScript(o options) string {
	var b strings.Builder
	b.WriteString(`#!/bin/busybox sh
/bin/busybox --install -s /bin
ln -s /bin/modprobe /sbin/modprobe
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
modprobe tun
mkdir -p /run/lock /root
export PATH=/bin:/sbin HOME=/root CALICO_ISOLATED=1 CALICO_VM=1 CALICO_BIN_DIR=/calico
ip link set lo up
`)
	for _, t := range o.tests {
		name := filepath.Base(t)
		fmt.Fprintf(&b, "cd /tests\n./%s -test.v -test.short -test.timeout %v -test.run '%s'\necho %q$?\n",
			name, o.limit, o.run, markEnd+name+" ")
	}
	fmt.Fprintf(&b, "echo %s\npoweroff -f\n", markDone)
	return b.String()
}

// boot runs the machine until it is off, shows what it says and returns an error unless all tests passed.
func boot(ctx context.Context, o options, image string) error {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-accel", "tcg", "-cpu", "max", "-smp", strconv.Itoa(o.cpus), "-m", strconv.Itoa(o.memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", filepath.Join(o.kernel, "vmlinuz"), "-initrd", image,
		// panic=-1: a panic restarts at once, which -no-reboot makes an end. So does a processor that is stuck for a minute.
		"-append", "console=ttyS0 panic=-1 watchdog_thresh=30 softlockup_panic=1 quiet loglevel=5 mitigations=off random.trust_cpu=on")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the machine: %w", err)
	}
	var o2 outcome
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		fmt.Printf("%7.1f %s\n", time.Since(start).Seconds(), line)
		o2.read(line)
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the machine: %w: %s", err, stderr)
	case lines.Err() != nil:
		return fmt.Errorf("read the console: %w", lines.Err())
	}
	return o2.judge(o.tests)
}

// An outcome is what the machine said of its tests.
type outcome struct {
	status map[string]string
	done   bool
}

func (o *outcome) read(line string) {
	// What a program wrote without an end of line stands before it.
	if _, rest, ok := strings.Cut(line, markEnd); ok {
		if f := strings.Fields(rest); len(f) == 2 {
			if o.status == nil {
				o.status = map[string]string{}
			}
			o.status[f[0]] = f[1]
		}
	}
	o.done = o.done || strings.HasSuffix(line, markDone)
}

// judge is nil where all tests ran and passed.
func (o *outcome) judge(tests []string) error {
	var errs []error
	for _, t := range tests {
		name := filepath.Base(t)
		switch status, ok := o.status[name]; {
		case !ok:
			errs = append(errs, fmt.Errorf("%s didn't end", name))
		case status != "0":
			errs = append(errs, fmt.Errorf("%s ended with status %s", name, status))
		}
	}
	if !o.done {
		errs = append(errs, errors.New("the machine ended before its tests"))
	}
	return errors.Join(errs...)
}
