// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"strings"
)

func tooLarge(n int) error { return fmt.Errorf("value of %d bytes: at most %d", n, maxValue) }

// ParseValue reads the value of a key, in its canonical and in every older
// form, and gives the type (no pointer) that the key's comment names. What it
// accepts is safe to use: indexes are in range, families are right, selectors
// parse. Where the value repeats what the key says, both must agree.
//
// The error for a policy whose selector can be read is an *InvalidPolicyError, for a
// host endpoint of which it can be read what it is on an *InvalidHostEndpointError.
func ParseValue(k Key, data []byte) (any, error) {
	if len(data) > maxValue {
		return nil, tooLarge(len(data))
	}
	switch k := k.(type) {
	case ReadyKey:
		return orNil(parseReady(data))
	case GlobalConfigKey, HostConfigKey:
		return Text(data), nil
	case HostBirdIPKey:
		return orNil(parseHostText(BGPHostIPv4, data))
	case BGPHostKey:
		return orNil(parseHostText(k.Field, data))
	case BGPGlobalASKey:
		return orNil(parseGlobalAS(data))
	case AffinityKey:
		return Affinity{}, nil
	case HostMetadataKey:
		if strings.TrimSpace(string(data)) == "" {
			return HostMetadata{}, nil
		}
		return parseJSON(data, parseHostMetadata)
	case WorkloadEndpointKey:
		return parseJSON(data, parseWorkloadEndpoint)
	case HostEndpointKey:
		return parseJSON(data, parseHostEndpoint)
	case ProfileRulesKey:
		return parseJSON(data, parseRules)
	case ProfileTagsKey:
		return parseJSON(data, parseTags)
	case ProfileLabelsKey:
		return parseJSON(data, parseLabels)
	case TierKey:
		return parseJSON(data, parseTier)
	case PolicyKey:
		return parseJSON(data, parsePolicy)
	case PoolKey:
		return parseJSON(data, func(r *reader) (Pool, error) { return parsePool(r, k.CIDR) })
	case BlockKey:
		return parseJSON(data, func(r *reader) (Block, error) { return parseBlock(r, k.CIDR) })
	case HandleKey:
		return parseJSON(data, func(r *reader) (Handle, error) { return parseHandle(r, k.ID) })
	case IPAMConfigKey:
		return parseJSON(data, parseIPAMConfig)
	case BGPMeshKey:
		return parseJSON(data, parseMesh)
	case BGPPeerKey:
		return parseJSON(data, func(r *reader) (BGPPeer, error) { return parsePeer(r, k.IP) })
	case StatusKey, LastStatusKey:
		return parseJSON(data, parseStatus)
	case WorkloadStatusKey, HostEndpointStatusKey:
		return parseJSON(data, parseEndpointStatus)
	case DHCPSubnetKey:
		return parseJSON(data, parseSubnet)
	}
	return nil, fmt.Errorf("%T: no key of the data model", k)
}

func parseJSON[T any](data []byte, parse func(*reader) (T, error)) (any, error) {
	r, err := newReader(data)
	if err != nil {
		return nil, err
	}
	return orNil(parse(r))
}

// orNil gives no half value with an error.
func orNil[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// FormatValue writes a value in its canonical form. It refuses a value that
// ParseValue would refuse.
func FormatValue(v any) ([]byte, error) {
	w := &writer{}
	var err error
	switch v := v.(type) {
	case Ready:
		if v {
			return []byte("true"), nil
		}
		return []byte("false"), nil
	case Text:
		if len(v) > maxValue {
			return nil, tooLarge(len(v))
		}
		return []byte(v), nil
	case ASNumber:
		return []byte(v.text()), nil
	case Affinity:
		return []byte("{}"), nil
	case HostMetadata:
		v.format(w)
	case WorkloadEndpoint:
		err = v.format(w)
	case HostEndpoint:
		err = v.format(w)
	case Rules:
		err = v.format(w)
	case Tags:
		err = v.format(w)
	case Labels:
		w.stringMap(v)
	case Tier:
		err = v.format(w)
	case Policy:
		err = v.format(w)
	case Pool:
		err = v.format(w)
	case Block:
		err = v.format(w)
	case Handle:
		err = v.format(w)
	case IPAMConfig:
		err = v.format(w)
	case Mesh:
		w.open('{')
		w.boolean("enabled", v.Enabled)
		w.close('}')
	case BGPPeer:
		err = v.format(w)
	case Status:
		err = v.format(w)
	case EndpointStatus:
		err = v.format(w)
	case Subnet:
		err = v.format(w)
	default:
		return nil, fmt.Errorf("format %T: not a value of the data model", v)
	}
	if err == nil {
		err = w.err
	}
	if err == nil && len(w.b) > maxValue {
		err = tooLarge(len(w.b))
	}
	if err != nil {
		return nil, fmt.Errorf("format %T: %w", v, err)
	}
	return w.b, nil
}

var (
	errMissing = errors.New("missing")
	errEmpty   = errors.New("empty")
)

func missing(field string) error { return inField(field, errMissing) }

func parseReady(data []byte) (Ready, error) {
	switch s := strings.TrimSpace(string(data)); s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%.32q: want true or false", s)
	}
}

func parseHostMetadata(r *reader) (HostMetadata, error) {
	var m HostMetadata
	if r.null() {
		return m, nil
	}
	err := r.object(func(name string) (err error) {
		if name == "labels" {
			m.Labels, err = r.stringMap()
		} else {
			r.raw()
		}
		return err
	})
	return m, err
}

func (m HostMetadata) format(w *writer) {
	w.open('{')
	if len(m.Labels) > 0 {
		w.name("labels")
		w.stringMap(m.Labels)
	}
	w.close('}')
}
