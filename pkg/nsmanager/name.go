// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"strings"
)

// fileName returns a safe file name for names chosen by others.
func fileName(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16]) + ".json"
}

func randomSeed() uint64 { return rand.Uint64() }
