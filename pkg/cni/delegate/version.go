// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
)

// Knows reports whether the plugin supports a verb introduced in CNI version since. It returns an error if the plugin
// supports none of the versions known here.
func (p Plugin) Knows(ctx context.Context, since string) (bool, error) {
	path, err := p.find()
	if err != nil {
		return false, err
	}
	newest, err := p.newest(ctx, path)
	if err != nil {
		return false, p.explain(ctx, err)
	}
	return version.GreaterThanOrEqualTo(newest, since)
}

// newest returns the newest CNI version that both the plugin and this package support.
func (p Plugin) newest(ctx context.Context, path string) (string, error) {
	info, err := invoke.GetVersionInfo(ctx, path, p.exec())
	if err != nil {
		return "", err
	}
	theirs := info.SupportedVersions()
	for _, v := range slices.Backward(version.All.SupportedVersions()) {
		if slices.Contains(theirs, v) {
			return v, nil
		}
	}
	return "", types.NewError(types.ErrInvalidNetworkConfig, "it knows the versions "+strings.Join(theirs, ", ")+" of CNI alone", "install one that knows 1.0.0")
}

// speak runs call with the configuration. If the plugin rejects its cniVersion, speak runs call again with the newest
// version that the plugin supports.
func (p Plugin) speak(ctx context.Context, path string, conf []byte, call func(conf []byte) error) error {
	err := call(conf)
	if theirs, ok := errors.AsType[*types.Error](err); !ok || theirs.Code != types.ErrIncompatibleCNIVersion {
		return err
	}
	newest, err := p.newest(ctx, path)
	if err != nil {
		return err
	}
	if conf, err = inVersion(conf, newest); err != nil {
		return err
	}
	return call(conf)
}

// inVersion converts a configuration, including its prevResult, to CNI version v.
func inVersion(conf []byte, v string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(conf, &fields); err != nil {
		return nil, err
	}
	values := map[string]any{"cniVersion": v}
	if raw := fields["prevResult"]; raw != nil {
		result, err := create.CreateFromBytes(raw)
		if err == nil {
			result, err = result.GetAsVersion(v)
		}
		if err != nil {
			return nil, err
		}
		values["prevResult"] = result
	}
	for name, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fields[name] = text
	}
	return json.Marshal(fields)
}
