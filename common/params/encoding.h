// How elements of a vector lie in the bytes of a chunk, with all that a reader must know: an
// Encoding has its parameters with it. Wire form: Encoding in proto/job.proto; the numbers are made
// and read in kernels/codec.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

class Encoding {
 public:
  enum class Kind : uint8_t {
    kFp32,
    kBf16,  // nearest, ties to even
    kFp16,  // IEEE half, nearest, ties to even
    // Per block: scale (fp32), then a signed byte per element; the element is scale * byte. Rounded
    // to the nearer one, or stochastically (Rounding of kernels/operation_arguments.h).
    kInt8,
    // Per block: scale (bf16, rounded up), then two codes in a byte, the first element's in its low
    // half; the element is scale * code, of two's complement within -7 and 7. Codes are rounded as
    // those of kInt8. An unused half is 0.
    kInt4,
    // Per block, of its topk() elements of largest magnitude, or all if it has fewer: low and step
    // (bf16), then the places in the block, ascending, 12 bits each, then codes of topk_bits() bits
    // each, whose upper bit is the sign and the others the level; the element is
    // +-(low + level * step). All others are 0. Of both lists the first bits come first, from the
    // low end of each byte; each fills whole bytes, and unused bits are 0.
    kTopK2,  // one bit of level
    kTopK4,  // three
  };

  static const Encoding kFp32;
  static const Encoding kBf16;
  static const Encoding kFp16;
  static const Encoding kInt8;
  static const Encoding kInt4;
  // `bits` is 2 or 4, `topk` from 1 to kMaxTopK.
  static constexpr Encoding TopK(int topk, int bits) {
    return Encoding(bits == 4 ? Kind::kTopK4 : Kind::kTopK2, topk);
  }

  constexpr Encoding() = default;

  constexpr Kind kind() const { return kind_; }
  constexpr bool is_topk() const { return kind_ == Kind::kTopK2 || kind_ == Kind::kTopK4; }
  // topk() is how many elements of a block are kept, and topk_bits() how many bits each takes. Both
  // are 0 if the encoding is not top-k.
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
// With that many elements a block of top-k is as large as int4 of the whole block.
inline constexpr int kMaxTopK = 1024;

// One of each kind.
inline constexpr Encoding kAllEncodings[] = {Encoding::kFp32,
                                             Encoding::kBf16,
                                             Encoding::kFp16,
                                             Encoding::kInt8,
                                             Encoding::kInt4,
                                             Encoding::TopK(kDefaultTopK, 2),
                                             Encoding::TopK(kDefaultTopK, 4)};

// Elements of a block; the last one of a vector may be shorter.
inline constexpr int64_t kInt8Block = 256;
inline constexpr int64_t kInt4Block = 128;
inline constexpr int64_t kTopKBlock = 4096;
// Whole blocks of every encoding.
inline constexpr int64_t kWholeBlocks = kTopKBlock;
static_assert(kWholeBlocks % kInt4Block == 0 && kWholeBlocks % kInt8Block == 0);

// A vector may be cut into chunks after any whole number of blocks.
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

// The sizes in bytes of one block of top-k, of which `kept` elements travel.
struct TopKBlockBytes {
  static constexpr int64_t kLevels = 4;  // low and step
  static constexpr int64_t kPlaceBits = 12;

  static constexpr int64_t Places(int64_t kept) { return (kPlaceBits * kept + 7) / 8; }
  static constexpr int64_t Codes(int64_t kept, int bits) { return (bits * kept + 7) / 8; }
  static constexpr int64_t All(int64_t kept, int bits) {
    return kept == 0 ? 0 : kLevels + Places(kept) + Codes(kept, bits);
  }
};
static_assert(int64_t{1} << TopKBlockBytes::kPlaceBits == kTopKBlock);

// Bytes of `elements` consecutive elements that start with a block.
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

// How many of a vector's last `room` elements, which start with a block, `bytes` hold: all of them,
// or whole blocks; -1 if neither.
int64_t ElementsIn(Encoding encoding, int64_t bytes, int64_t room);

// The most elements of a chunk that is not the last of its vector: whole blocks in `bytes`, at
// least one block.
int64_t ChunkElements(Encoding encoding, int64_t bytes);

// How many of the newest changes of a vector are worth keeping, at least 1: together they are
// smaller than the vector in fp32.
int64_t ChangesKept(Encoding encoding, int64_t elements);

// Encodings have the names that flags have for them: "int8". Both kinds of top-k are "topk", which
// parses with the defaults. Errors: InvalidArgument naming the flag, the name and what is allowed.
absl::StatusOr<Encoding> ParseEncoding(absl::string_view flag, absl::string_view name);
absl::string_view EncodingName(Encoding encoding);
// Returns the name that the wire has: "topk2", "topk4".
absl::string_view EncodingKindName(Encoding::Kind kind);

// With the parameters: "int8", "topk(64,2)", which are topk() and topk_bits(). Errors:
// InvalidArgument naming `what` and the text.
std::string EncodingText(Encoding encoding);
absl::StatusOr<Encoding> ParseEncodingText(absl::string_view what, absl::string_view text);

// Errors: InvalidArgument naming the flag, --topk or --topk_bits, the number and what is allowed.
absl::StatusOr<Encoding> MakeTopK(int64_t topk, int64_t bits);

}  // namespace lodestar
