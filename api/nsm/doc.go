// SPDX-License-Identifier: Apache-2.0

// Package nsm is the messages and services of network service connections, generated from the .proto files beside it by
// `go run -C tools ./protos`.
package nsm
