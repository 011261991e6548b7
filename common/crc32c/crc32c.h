// CRC-32C (Castagnoli; RFC 3720 section B.4): checksums of chunks and of checkpoint files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace lodestar {

// Checksum of the bytes before (whose checksum is `seed`; 0 if there are none) followed by `data`.
// Crc32c("123456789") is 0xE3069283. Uses the carry-less products and the crc32 instruction of
// processors that have them.
uint32_t Crc32c(const void* data, size_t size, uint32_t seed = 0);
inline uint32_t Crc32c(absl::Span<const uint8_t> data, uint32_t seed = 0) {
  return Crc32c(data.data(), data.size(), seed);
}

// Where a copy goes that is read again soon, and one that is not: then `destination` need not be
// read before it is written, which costs more than the copy where it is in no cache.
enum class CopyTo : uint8_t { kCaches, kMemory };

// Does what Crc32c() does, and copies the bytes in the same pass over memory. The checksum is of
// what is in `destination`, even if another thread or process changes `source` meanwhile. The two
// do not overlap.
uint32_t Crc32cCopy(void* destination, const void* source, size_t size, uint32_t seed = 0,
                    CopyTo copy_to = CopyTo::kCaches);

// Checksum of A followed by B, from their checksums and the length of B in bytes.
uint32_t Crc32cCombine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);

// Same as Crc32c() without special instructions; the reference for its test.
uint32_t Crc32cPortable(const void* data, size_t size, uint32_t seed = 0);

}  // namespace lodestar
