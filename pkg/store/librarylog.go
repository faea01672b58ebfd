// SPDX-License-Identifier: Apache-2.0

package store

import (
	"io"
	"log/slog"

	"google.golang.org/grpc/grpclog"
)

// DiscardLibraryLogs discards what gRPC, and whatever uses the standard log package, would write to stderr past the
// program's own log: the error of a request says what counts. A process calls it before anything else.
func DiscardLibraryLogs() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // package log writes to that too
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}
