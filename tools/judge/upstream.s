// SPDX-License-Identifier: Apache-2.0

// With a file in assembly, Go takes functions without a body, such as evaluatePacket.
