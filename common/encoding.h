// How elements of a vector lie in the bytes of a chunk. Wire form: Encoding in proto/job.proto; the
// numbers are made and read in kernels/codec.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

enum class Encoding : uint8_t {
  kFp32,
  kBf16,  // nearest, ties to even
  kFp16,  // IEEE half, nearest, ties to even
  // Per block: scale (fp32), then a signed byte per element; the element is scale * byte. Rounded
  // stochastically.
  kInt8,
  // Per block: scale (bf16, rounded up), then two codes in a byte, the first element's in its low
  // half; the element is scale * code, of two's complement within -7 and 7. Rounded stochastically.
  // An unused half is 0.
  kInt4,
};

inline constexpr Encoding kAllEncodings[] = {Encoding::kFp32, Encoding::kBf16, Encoding::kFp16,
                                             Encoding::kInt8, Encoding::kInt4};

// Elements of a block; the last one of a vector may be shorter.
inline constexpr int64_t kInt8Block = 256;
inline constexpr int64_t kInt4Block = 128;
// Whole blocks of every encoding.
inline constexpr int64_t kWholeBlocks = kInt8Block;
static_assert(kWholeBlocks % kInt4Block == 0);

// A vector may be cut into chunks after any whole number of blocks.
constexpr int64_t BlockElements(Encoding encoding) {
  switch (encoding) {
    case Encoding::kFp32:
    case Encoding::kBf16:
    case Encoding::kFp16:
      return 1;
    case Encoding::kInt8:
      return kInt8Block;
    case Encoding::kInt4:
      return kInt4Block;
  }
  return 1;
}

// Bytes of `elements` consecutive elements that start with a block.
constexpr int64_t EncodedBytes(Encoding encoding, int64_t elements) {
  switch (encoding) {
    case Encoding::kFp32:
      return 4 * elements;
    case Encoding::kBf16:
    case Encoding::kFp16:
      return 2 * elements;
    case Encoding::kInt8:
      return elements + 4 * ((elements + kInt8Block - 1) / kInt8Block);
    case Encoding::kInt4:
      return (elements + 1) / 2 + 2 * ((elements + kInt4Block - 1) / kInt4Block);
  }
  return 0;
}

// How many of a vector's last `room` elements, which start with a block, `bytes` hold: all of them,
// or whole blocks; -1 if neither.
int64_t ElementsIn(Encoding encoding, int64_t bytes, int64_t room);

// The most elements of a chunk that is not the last of its vector: whole blocks in `bytes`, at
// least one block.
int64_t ChunkElements(Encoding encoding, int64_t bytes);

// How many of the newest changes of a vector are worth keeping, at least 1: together they are
// smaller than the vector in fp32.
int64_t ChangesKept(Encoding encoding, int64_t elements);

// Errors: InvalidArgument naming the flag, the name and what is allowed.
absl::StatusOr<Encoding> ParseEncoding(absl::string_view flag, absl::string_view name);
absl::string_view EncodingName(Encoding encoding);

}  // namespace lodestar
