// SPDX-License-Identifier: Apache-2.0

package store

import (
	"io"
	"log/slog"

	"google.golang.org/grpc/grpclog"
)

// DiscardLibraryLogs discards what gRPC and users of the standard log package would write to stderr, bypassing the
// program's own log: the error of a request says what matters. Call it before anything else in the process.
func DiscardLibraryLogs() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // package log writes to that too
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}
