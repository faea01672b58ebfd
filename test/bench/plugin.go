// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/lab"
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
	asked     counters
}

// counters are what our plugin says itself, in the last line of its log.
type counters struct{ roundTrips, bytesRead, conflicts int64 }

// call is one verb for one container.
type call struct {
	verb, container string
	host, pod       lab.Namespace
}

// command is the call, started by the programs given first, if any.
func (p plugin) command(c call, stdout, stderr io.Writer, by ...string) *exec.Cmd {
	args := append(by, p.bin)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(p.conf), stdout, stderr
	cmd.Env = append([]string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"CNI_COMMAND=" + c.verb,
		"CNI_CONTAINERID=" + c.container,
		"CNI_NETNS=" + c.pod.Path(),
		"CNI_IFNAME=eth0",
		"CNI_PATH=" + filepath.Dir(p.bin),
	}, p.env...)
	return cmd
}

// exec makes the call. The times are of the whole process, its own children
// included (getrusage(2), RUSAGE_CHILDREN of what was waited for).
func (p plugin) exec(c call) (sample, error) {
	var stdout, stderr bytes.Buffer
	cmd := p.command(c, &stdout, &stderr)
	var begin time.Time
	err := c.host.Do(func() error {
		begin = time.Now()
		return cmd.Start()
	})
	if err != nil {
		return sample{}, fmt.Errorf("start %s: %w", p.bin, err)
	}
	err = cmd.Wait()
	wall := time.Since(begin)
	if err != nil {
		return sample{}, fmt.Errorf("%s, %s of %s: %w\n%s%s", p.name, c.verb, c.container, err, stdout.Bytes(), stderr.Bytes())
	}
	return sample{
		wall:  wall,
		cpu:   cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		asked: logged(stderr.String()),
	}, nil
}

// peak makes the call by way of the small program of that name, and returns the
// largest resident set, in bytes.
func (p plugin) peak(c call, by string) (int64, error) {
	result, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer result.Close()
	var output bytes.Buffer
	cmd := p.command(c, &output, &output, by)
	cmd.ExtraFiles = []*os.File{w}
	err = c.host.Do(cmd.Run)
	w.Close()
	if err != nil {
		return 0, fmt.Errorf("%s, %s of %s: %w\n%s", p.name, c.verb, c.container, err, output.Bytes())
	}
	text, err := io.ReadAll(result)
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return kib << 10, err
}

// logged reads the counters from what our plugin wrote to stderr: words such as
// round_trips=2.
func logged(stderr string) counters {
	var c counters
	for word := range strings.FieldsSeq(stderr) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "round_trips":
			c.roundTrips = n
		case "bytes_read":
			c.bytesRead = n
		case "conflicts":
			c.conflicts = n
		}
	}
	return c
}
