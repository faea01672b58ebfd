// SPDX-License-Identifier: Apache-2.0

package member

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/calico-go/calico/pkg/lab"
)

// newControl returns a handler for the requests listed in lab.MemberConfig.Control.
func newControl(server *etcdserver.EtcdServer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		kv := server.KV()
		reply(w, lab.MemberStatus{
			ID: uint64(server.MemberID()), Leader: uint64(server.Leader()),
			Revision: kv.Rev(), Compacted: kv.FirstRev(),
			Auth: server.AuthStore().IsAuthEnabled(),
		}, nil)
	})
	mux.HandleFunc("GET /range", func(w http.ResponseWriter, r *http.Request) {
		out, err := readRange(r, server)
		reply(w, out, err)
	})
	mux.HandleFunc("POST /compact", func(w http.ResponseWriter, r *http.Request) {
		revision, err := revisionOf(r)
		if err == nil {
			_, err = server.Compact(r.Context(), &pb.CompactionRequest{Revision: revision, Physical: true})
		}
		reply(w, struct{}{}, err)
	})
	mux.HandleFunc("POST /alarm", func(w http.ResponseWriter, r *http.Request) {
		action := pb.AlarmRequest_DEACTIVATE
		if r.FormValue("on") == "true" {
			action = pb.AlarmRequest_ACTIVATE
		}
		_, err := server.Alarm(r.Context(), &pb.AlarmRequest{
			Action: action, MemberID: uint64(server.MemberID()), Alarm: pb.AlarmType_NOSPACE,
		})
		reply(w, struct{}{}, err)
	})
	return mux
}

func revisionOf(r *http.Request) (int64, error) {
	text := r.FormValue("revision")
	if text == "" {
		return 0, nil
	}
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("revision %q: want a number", text)
	}
	return revision, nil
}

// readRange bypasses etcd's API: it needs no user, and doesn't involve the code under test. Revision 0 is the latest
// that the cluster has agreed on.
func readRange(r *http.Request, server *etcdserver.EtcdServer) (lab.MemberRange, error) {
	revision, err := revisionOf(r)
	if err != nil {
		return lab.MemberRange{}, err
	}
	if err := server.LinearizableReadNotify(r.Context()); err != nil {
		return lab.MemberRange{}, err
	}
	prefix := []byte(r.FormValue("prefix"))
	result, err := server.KV().Range(r.Context(), prefix, prefixEnd(prefix), mvcc.RangeOptions{Rev: revision})
	if err != nil {
		kv := server.KV()
		return lab.MemberRange{}, fmt.Errorf("revision %d: %w: want %d to %d", revision, err, max(kv.FirstRev(), 1), kv.Rev())
	}
	out := lab.MemberRange{Revision: result.Rev, Keys: []lab.MemberKey{}}
	if revision != 0 {
		out.Revision = revision
	}
	for _, kv := range result.KVs {
		out.Keys = append(out.Keys, lab.MemberKey{
			Key: string(kv.Key), Value: kv.Value, Created: kv.CreateRevision, Modified: kv.ModRevision, Lease: kv.Lease,
		})
	}
	return out, nil
}

// prefixEnd returns the first key after all keys with the prefix.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0} // up to the end of the store
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
