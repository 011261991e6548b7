// SPDX-License-Identifier: Apache-2.0

// CRC-32C (Castagnoli; RFC 3720 section B.4): checksums of chunks and of checkpoint files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace lodestar::crc32c {

// Returns the checksum of earlier bytes followed by `data`. `seed` is the checksum of the earlier
// bytes, and 0 if there are none. Crc32c("123456789") is 0xE3069283. Uses carry-less products and
// the crc32 instruction if the processor has them.
uint32_t Crc32c(const void* data, size_t size, uint32_t seed = 0);
inline uint32_t Crc32c(absl::Span<const uint8_t> data, uint32_t seed = 0) {
  return Crc32c(data.data(), data.size(), seed);
}

// Says how a copy is written. kCaches: into the caches, for a copy that is read again soon.
// kMemory: past the caches. The processor then does not read the destination first, which would
// cost more than the copy itself.
enum class CopyTo : uint8_t { kCaches, kMemory };

// Returns Crc32c() of the bytes, and copies them in the same pass over memory. The checksum is of
// the bytes in `destination`, even if another thread or process changes `source` meanwhile. Source
// and destination must not overlap.
uint32_t Crc32cCopy(void* destination, const void* source, size_t size, uint32_t seed = 0,
                    CopyTo copy_to = CopyTo::kCaches);

// Returns the checksum of A followed by B, from their checksums and the length of B in bytes.
uint32_t Crc32cCombine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);

// Returns the same as Crc32c() without special instructions. It is the reference in tests.
uint32_t Crc32cPortable(const void* data, size_t size, uint32_t seed = 0);

}  // namespace lodestar::crc32c
