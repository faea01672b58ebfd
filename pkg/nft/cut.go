// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
)

// Flow is one direction of a connection, as policy sees its packets: after their
// destination was translated, and before their source is.
type Flow struct {
	Protocol         model.Protocol
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16 // 0 where Protocol.HasPorts says no
}

// Cut adds flows whose packets can't begin a connection, since what their other
// side began was cut, and then takes some out. It does no I/O.
func (f *Firewall) Cut(added, removed []Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, flow := range added {
		if s := f.desired.cut(flow); s != nil {
			s.put(flow.key(), "")
		}
	}
	for _, flow := range removed {
		if s := f.desired.cut(flow); s != nil {
			s.remove(flow.key())
		}
	}
}

// ReadCut reads which flows the kernel has as cut, and how many packets of each
// it has dropped.
func (f *Firewall) ReadCut() (map[Flow]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for range maxTries {
		out := make(map[Flow]uint64)
		for _, def := range cutSets() {
			if err = f.sock.readCut(def, out); err != nil {
				break
			}
		}
		if !errors.Is(err, errInterrupted) {
			return out, err
		}
	}
	return nil, err
}

func (s *socket) readCut(def Set, out map[Flow]uint64) error {
	body := appendString(appendString(nil, attrTable, TableName), attrName, def.Name)
	err := s.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, body, func(_ uint16, body []byte) {
		for _, e := range attrs(attr(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			key := string(attr(attr(e, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE))
			if flow, ok := parseFlow(def.Key, key); ok {
				counter := attr(attr(e, unix.NFTA_SET_ELEM_EXPR), unix.NFTA_EXPR_DATA)
				out[flow] = number(attr(counter, unix.NFTA_COUNTER_PACKETS))
			}
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) { // the table is still to be made
		return fmt.Errorf("read the elements of set %s: %w", def.Name, err)
	}
	return nil
}

// cut is the set that a flow belongs to, nil where it is of no IP version.
func (d *desired) cut(flow Flow) *set {
	if !flow.Src.IsValid() || flow.Src.Is4() != flow.Dst.Is4() {
		return nil
	}
	name, version := setCut, 6
	if !flow.Protocol.HasPorts() {
		name = setCutPortless
	}
	if flow.Src.Is4() {
		version = 4
	}
	d.changed[versioned(name, version)] = true
	return d.sets[versioned(name, version)]
}

func (flow Flow) key() string {
	parts := []string{addrBytes(flow.Src), addrBytes(flow.Dst), string([]byte{byte(flow.Protocol)})}
	if flow.Protocol.HasPorts() {
		parts = append(parts, portBytes(flow.SrcPort), portBytes(flow.DstPort))
	}
	return concat(parts...)
}

// parseFlow reads what key writes; another make of the set may have other keys.
func parseFlow(types []Type, key string) (Flow, bool) {
	if len(key) != keySize(types) {
		return Flow{}, false
	}
	next := func(t Type) []byte {
		b := []byte(key[:t.size()])
		key = key[t.padded():]
		return b
	}
	var flow Flow
	flow.Src, _ = netip.AddrFromSlice(next(types[0]))
	flow.Dst, _ = netip.AddrFromSlice(next(types[1]))
	flow.Protocol = model.Protocol(next(types[2])[0])
	if len(types) > 3 {
		flow.SrcPort, flow.DstPort = binary.BigEndian.Uint16(next(types[3])), binary.BigEndian.Uint16(next(types[4]))
	}
	return flow, true
}

// cutSets are the sets of flows, empty. Their elements count, so that it shows
// which are still sent.
func cutSets() []Set {
	var sets []Set
	for _, version := range [...]int{4, 6} {
		addr := address(version, false).kind
		sets = append(sets,
			Set{Name: versioned(setCut, version), Key: []Type{addr, addr, typeProtocol, typeService, typeService}, Count: true, Comment: "the other side of connections that policy has come to deny"},
			Set{Name: versioned(setCutPortless, version), Key: []Type{addr, addr, typeProtocol}, Count: true, Comment: "the same as " + setCut + ", of protocols without ports"})
	}
	return sets
}

// cutFlows drops the first packets of what would be a connection that was cut, the
// other way round.
func cutFlows() []Rule {
	var out []Rule
	for _, version := range [...]int{4, 6} {
		fields := []Field{address(version, false), address(version, true), l4proto}
		out = append(out,
			accept(Drop, "", InSet{Fields: append(fields, sourcePort, destPort), Set: versioned(setCut, version)}),
			accept(Drop, "", InSet{Fields: fields, Set: versioned(setCutPortless, version)}))
	}
	return out
}
