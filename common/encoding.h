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
};

inline constexpr Encoding kAllEncodings[] = {Encoding::kFp32, Encoding::kBf16, Encoding::kFp16,
                                             Encoding::kInt8};

// Elements of a block of kInt8; the last one of a vector may be shorter.
inline constexpr int64_t kInt8Block = 256;

// A vector may be cut into chunks after any whole number of blocks.
constexpr int64_t BlockElements(Encoding encoding) {
  return encoding == Encoding::kInt8 ? kInt8Block : 1;
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
  }
  return 0;
}

// How many elements `bytes` hold; -1 if no number of elements takes so many.
int64_t ElementsIn(Encoding encoding, int64_t bytes);

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
