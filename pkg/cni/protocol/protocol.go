// SPDX-License-Identifier: Apache-2.0

// Package protocol is what the CNI specification says of a plugin as a process:
// what comes in by the environment and on stdin, and what goes out as a result,
// as an error or to the log.
//
// It does not build on the CNI project's skel package: that reads any amount
// of stdin, finds out that CNI_NETNS is wrong only after an ADD has done its
// work, and then undoes nothing.
package protocol

import (
	"errors"
	"io"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/calico-go/calico/netconf"
)

// Supported lists the versions of the CNI specification that we speak.
func Supported() version.PluginInfo {
	return version.PluginSupports("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
}

// How much stdin is read. A configuration is a few kilobytes; what GC gets
// grows with the number of containers.
const (
	maxStdin   = 512 << 10
	maxStdinGC = 16 << 20
)

// ReadConfig leaves in conf what could be read, with an error too. For a DEL, ignored says what
// of it is left out.
func ReadConfig(conf *netconf.Config, stdin io.Reader, command string) (ignored, err error) {
	limit := maxStdin
	if command == "GC" {
		limit = maxStdinGC
	}
	data, err := io.ReadAll(io.LimitReader(stdin, int64(limit)+1))
	switch {
	case err != nil:
		return nil, Failf(CodeIO, "", "read the network configuration from stdin: %w", err)
	case len(data) > limit:
		return nil, Failf(CodeDecode, "pass one plugin's network configuration on stdin, and nothing else",
			"network configuration: stdin has more than %d KiB", limit>>10)
	}
	var parsed *netconf.Config
	if command == "DEL" {
		parsed, ignored, err = netconf.ParseDEL(data)
	} else {
		parsed, err = netconf.Parse(data)
	}
	if errors.As(err, new(*netconf.SyntaxError)) {
		return nil, Fail(CodeDecode, err, "pass one plugin's network configuration on stdin, as JSON")
	}
	*conf = *parsed
	if conf.CNIVersion == "" {
		conf.CNIVersion = "0.1.0"
	}
	if err != nil {
		return nil, Fail(CodeConfig, err, "correct the network configuration, most often in /etc/cni/net.d")
	}
	return ignored, nil
}

// since is the version that introduced a verb.
var since = map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}

// CheckVersion refuses a version that we don't speak, or that doesn't know the verb.
func CheckVersion(v, command string) error {
	if !slices.Contains(Supported().SupportedVersions(), v) {
		return Failf(CodeVersion, "set cniVersion to one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0 and 1.1.0", "cniVersion %q is not supported", v)
	}
	if low := since[command]; low != "" {
		if ok, err := version.GreaterThanOrEqualTo(v, low); err != nil || !ok {
			return Failf(CodeVersion, "set cniVersion to "+low+" or later", "cniVersion %s does not know %s", v, command)
		}
	}
	return nil
}

// PrintResult writes a result in the shape of the configuration's version.
func PrintResult(r types.Result, cniVersion string, stdout io.Writer) error {
	converted, err := r.GetAsVersion(cniVersion)
	if err != nil {
		return Failf(CodeVersion, "use a newer cniVersion", "the result as version %s: %w", cniVersion, err)
	}
	if err := converted.PrintTo(stdout); err != nil {
		return Failf(CodeIO, "", "write the result: %w", err)
	}
	// By hand, the shell's prompt stands on a line of its own.
	if _, err := io.WriteString(stdout, "\n"); err != nil {
		return Failf(CodeIO, "", "write the result: %w", err)
	}
	return nil
}
