// SPDX-License-Identifier: Apache-2.0

// Package protocol implements what the CNI specification says about a plugin as a process: its input from the
// environment and stdin, and its output as a result, an error or a log.
//
// It does not build on the CNI project's skel package, which reads any amount of stdin, notices a wrong CNI_NETNS only
// after an ADD has done its work, and then undoes nothing.
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

// Limits on stdin. A configuration is a few kilobytes; the input of GC grows with the number of containers.
const (
	maxStdin   = 512 << 10
	maxStdinGC = 16 << 20
)

// ReadConfig reads the network configuration from stdin into conf. On error, conf has what could be read. For a DEL,
// ignored says which parts of the configuration are left out.
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

// since maps a verb to the CNI version that introduced it.
var since = map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}

// CheckVersion rejects a version that we don't support, or that doesn't have the verb.
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

// PrintResult writes a result in the format of the configuration's version.
func PrintResult(r types.Result, cniVersion string, stdout io.Writer) error {
	converted, err := r.GetAsVersion(cniVersion)
	if err != nil {
		return Failf(CodeVersion, "use a newer cniVersion", "the result as version %s: %w", cniVersion, err)
	}
	if err := converted.PrintTo(stdout); err != nil {
		return Failf(CodeIO, "", "write the result: %w", err)
	}
	// End with a newline, so that in a terminal the shell's prompt starts a new line.
	if _, err := io.WriteString(stdout, "\n"); err != nil {
		return Failf(CodeIO, "", "write the result: %w", err)
	}
	return nil
}
