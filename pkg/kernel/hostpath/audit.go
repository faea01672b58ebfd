// SPDX-License-Identifier: Apache-2.0

package hostpath

import "context"

// Audit reads the whole state while ApplySome goes on, and returns the interfaces
// that are not as they were last reported, to be given to ApplySome; those that it
// was about meanwhile are not among them. The host as a whole it brings in line by
// itself, which is all that its report is of, beside Strays. The error is as Apply's.
func (h *Path) Audit(ctx context.Context) (Report, []string, error) {
	h.auditing.Lock()
	defer h.auditing.Unlock()
	h.begin()
	defer h.end()
	if err := ctx.Err(); err != nil {
		return Report{}, nil, err
	}
	seen, unseen := h.auditor.glance(nil)
	st, err := h.auditor.readAll()
	if err != nil {
		return Report{}, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Report{}, nil, err
	}
	var report Report
	h.convergeHostWhole(&report)
	h.scopeWhole(st)
	var doubtful []string
	for _, p := range h.plan(st) {
		was, settled := h.settled[p.name]
		right := p.err == nil && (!settled || was.index == st.links[p.name].Index)
		_, wanted := h.desired[p.name]
		if !wanted {
			report.stray(st.links[p.name])
		}
		if !h.touched[p.name] && (len(p.changes) > 0 || wanted && right != settled) {
			doubtful = append(doubtful, p.name)
		}
	}
	if report.Writes == 0 && unseen == nil && doubtful == nil && len(h.touched) == 0 {
		h.right = &seen
		h.told.ReadAll()
	}
	return report, doubtful, nil
}

// begin has ApplySome note what it is about, and takes in what the kernel told.
func (h *Path) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.touched = make(map[string]bool)
	h.told.Hear(h.sock.Buf, h.matters)
}

func (h *Path) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.touched = nil
}
