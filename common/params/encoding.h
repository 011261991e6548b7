// SPDX-License-Identifier: Apache-2.0

// Encoding says how the elements of a vector lie in the bytes of a chunk, with all parameters that
// a reader needs. Wire form: Encoding in proto/job.proto. The code in kernels/codec writes and
// reads the bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::params {

class Encoding {
 public:
  enum class Kind : uint8_t {
    kFp32,
    kBf16,  // rounded to nearest, ties to even
    kFp16,  // IEEE half, rounded to nearest, ties to even
    // A block has a scale (fp32), then a signed byte per element. The element's value is scale *
    // byte. The byte is rounded to nearest or stochastically (Rounding in
    // kernels/operation_arguments.h).
    kInt8,
    // A block has a scale (bf16, rounded up), then a code of 4 bits per element. The element's
    // value is scale * code. Codes are in two's complement, from -7 to 7, and rounded as in kInt8.
    // The first code of a byte is in the low half. An unused half is 0.
    kInt4,
    // A block has the topk() elements of largest magnitude, or all elements if it has fewer. The
    // other elements are 0. The parts of a block are:
    // - `low` and `step` (bf16 each);
    // - the positions of the elements in the block, ascending, 12 bits each;
    // - a code of topk_bits() bits per element. Its upper bit is the sign, its other bits are the
    //   level.
    //
    // The element's value is +-(low + level * step). Positions and codes fill each byte from the
    // low end. The positions end with a whole byte, and so do the codes. Unused bits are 0.
    kTopK2,  // the level has one bit
    kTopK4,  // the level has three bits
  };

  static const Encoding kFp32;
  static const Encoding kBf16;
  static const Encoding kFp16;
  static const Encoding kInt8;
  static const Encoding kInt4;
  // Returns top-k. `bits` is 2 or 4, `topk` is from 1 to kMaxTopK.
  static constexpr Encoding TopK(int topk, int bits) {
    return Encoding(bits == 4 ? Kind::kTopK4 : Kind::kTopK2, topk);
  }

  constexpr Encoding() = default;

  constexpr Kind kind() const { return kind_; }
  constexpr bool is_topk() const { return kind_ == Kind::kTopK2 || kind_ == Kind::kTopK4; }
  // topk() is the number of elements of a block that are kept, and topk_bits() the number of bits
  // of each code. Both are 0 if the encoding is not top-k.
  constexpr int topk() const { return topk_; }
  constexpr int topk_bits() const { return is_topk() ? (kind_ == Kind::kTopK4 ? 4 : 2) : 0; }

  friend constexpr bool operator==(Encoding, Encoding) = default;

 private:
  constexpr explicit Encoding(Kind kind, int topk = 0) : kind_(kind), topk_(topk) {}

  Kind kind_ = Kind::kFp32;
  int topk_ = 0;
};

inline constexpr Encoding Encoding::kFp32 = Encoding(Encoding::Kind::kFp32);
inline constexpr Encoding Encoding::kBf16 = Encoding(Encoding::Kind::kBf16);
inline constexpr Encoding Encoding::kFp16 = Encoding(Encoding::Kind::kFp16);
inline constexpr Encoding Encoding::kInt8 = Encoding(Encoding::Kind::kInt8);
inline constexpr Encoding Encoding::kInt4 = Encoding(Encoding::Kind::kInt4);

inline constexpr int kDefaultTopK = 64;
inline constexpr int kDefaultTopKBits = 2;
// Maximum of topk(). With this value a block of top-k is as large as the whole block in int4.
inline constexpr int kMaxTopK = 1024;

// One encoding of each kind.
inline constexpr Encoding kAllEncodings[] = {Encoding::kFp32,
                                             Encoding::kBf16,
                                             Encoding::kFp16,
                                             Encoding::kInt8,
                                             Encoding::kInt4,
                                             Encoding::TopK(kDefaultTopK, 2),
                                             Encoding::TopK(kDefaultTopK, 4)};

// Numbers of elements in a block. The last block of a vector may be shorter.
inline constexpr int64_t kInt8Block = 256;
inline constexpr int64_t kInt4Block = 128;
inline constexpr int64_t kTopKBlock = 4096;
// Number of elements that is a multiple of every encoding's block.
inline constexpr int64_t kWholeBlocks = kTopKBlock;
static_assert(kWholeBlocks % kInt4Block == 0 && kWholeBlocks % kInt8Block == 0);

// Returns the number of elements in a block. A vector may be cut into chunks after any whole number
// of blocks.
constexpr int64_t BlockElements(Encoding encoding) {
  switch (encoding.kind()) {
    case Encoding::Kind::kFp32:
    case Encoding::Kind::kBf16:
    case Encoding::Kind::kFp16:
      return 1;
    case Encoding::Kind::kInt8:
      return kInt8Block;
    case Encoding::Kind::kInt4:
      return kInt4Block;
    case Encoding::Kind::kTopK2:
    case Encoding::Kind::kTopK4:
      return kTopKBlock;
  }
  return 1;
}

// Sizes in bytes of the parts of one block of top-k. `kept` is the number of elements that are
// sent.
struct TopKBlockBytes {
  static constexpr int64_t kLevels = 4;  // size of low and step together
  static constexpr int64_t kPlaceBits = 12;

  static constexpr int64_t Places(int64_t kept) { return (kPlaceBits * kept + 7) / 8; }
  static constexpr int64_t Codes(int64_t kept, int bits) { return (bits * kept + 7) / 8; }
  static constexpr int64_t All(int64_t kept, int bits) {
    return kept == 0 ? 0 : kLevels + Places(kept) + Codes(kept, bits);
  }
};
static_assert(int64_t{1} << TopKBlockBytes::kPlaceBits == kTopKBlock);

// Returns the encoded size in bytes of `elements` consecutive elements. The first element begins a
// block.
constexpr int64_t EncodedBytes(Encoding encoding, int64_t elements) {
  switch (encoding.kind()) {
    case Encoding::Kind::kFp32:
      return 4 * elements;
    case Encoding::Kind::kBf16:
    case Encoding::Kind::kFp16:
      return 2 * elements;
    case Encoding::Kind::kInt8:
      return elements + 4 * ((elements + kInt8Block - 1) / kInt8Block);
    case Encoding::Kind::kInt4:
      return (elements + 1) / 2 + 2 * ((elements + kInt4Block - 1) / kInt4Block);
    case Encoding::Kind::kTopK2:
    case Encoding::Kind::kTopK4: {
      const int64_t topk = encoding.topk();
      const int64_t of_last = std::min(topk, elements % kTopKBlock);
      return elements / kTopKBlock * TopKBlockBytes::All(topk, encoding.topk_bits()) +
             TopKBlockBytes::All(of_last, encoding.topk_bits());
    }
  }
  return 0;
}

// Returns the number of elements in a chunk of `bytes`. The chunk begins with a block. Its vector
// has `room` elements from there to its end. The result is `room` or a number of whole blocks. -1
// means that `bytes` is the size of neither.
int64_t ElementsIn(Encoding encoding, int64_t bytes, int64_t room);

// Returns the maximum number of elements of a chunk of `bytes` that is not the last of its vector.
// The chunk has whole blocks, at least one.
int64_t ChunkElements(Encoding encoding, int64_t bytes);

// Returns how many of a vector's newest encoded changes are kept: as many as are together smaller
// than the vector in fp32, but at least 1.
int64_t ChangesKept(Encoding encoding, int64_t elements);

// ParseEncoding() reads the name of an encoding in a flag, such as "int8". EncodingName() returns
// that name. "topk" is the name of both kinds of top-k. It is read as top-k with the default
// parameters. Errors: InvalidArgument naming the flag, the name and what is allowed.
absl::StatusOr<Encoding> ParseEncoding(absl::string_view flag, absl::string_view name);
absl::string_view EncodingName(Encoding encoding);
// Returns the name in the wire form, such as "topk2" or "topk4".
absl::string_view EncodingKindName(Encoding::Kind kind);

// EncodingText() returns an encoding with its parameters, such as "int8" or "topk(64,2)" for topk()
// 64 and topk_bits() 2. ParseEncodingText() reads that text. Errors: InvalidArgument naming `what`
// and the text.
std::string EncodingText(Encoding encoding);
absl::StatusOr<Encoding> ParseEncodingText(absl::string_view what, absl::string_view text);

// Returns top-k with these parameters. Errors: InvalidArgument naming the flag, --topk or
// --topk_bits, the number and what is allowed.
absl::StatusOr<Encoding> MakeTopK(int64_t topk, int64_t bits);

}  // namespace lodestar::params
