// SPDX-License-Identifier: Apache-2.0

#include "common/crc32c/crc32c.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "common/crc32c/crc32c_folding.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lodestar::crc32c {
namespace {

static_assert(std::endian::native == std::endian::little);

// A remainder modulo the Castagnoli polynomial has the coefficient of x^0 in its highest bit.
constexpr uint32_t kPolynomial = 0x82F63B78;  // x^32 is left out, because it is always there
constexpr uint32_t kOne = 0x80000000;         // x^0

constexpr uint32_t TimesX(uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0); }

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

constexpr uint32_t PowerOfX(uint64_t exponent) {
  uint32_t square = kOne >> 1;  // x
  uint32_t power = kOne;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = Multiply(power, square);
    square = Multiply(square, square);
  }
  return power;
}

// Returns the factor by which a remainder changes if `num_bytes` zero bytes are appended to the
// data.
constexpr uint32_t AppendZeros(uint64_t num_bytes) { return PowerOfX(8 * num_bytes); }

using ByteTables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b] is the remainder of byte b followed by k zero bytes (slicing by 8; Kounavis, Berry
// 2008).
constexpr ByteTables MakeByteTables() {
  ByteTables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = TimesX(remainder);
    tables[0][byte] = remainder;
  }
  for (int k = 1; k < 8; ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xff];
    }
  }
  return tables;
}

constexpr ByteTables kByteTables = MakeByteTables();

uint32_t ExtendPortable(uint32_t state, const uint8_t* data, size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, sizeof(word));
    word ^= state;
    state = 0;
    for (int k = 0; k < 8; ++k) state ^= kByteTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; size > 0; ++data, --size) {
    state = (state >> 8) ^ kByteTables[0][(state ^ *data) & 0xff];
  }
  return state;
}

#if defined(__x86_64__)

inline uint64_t Load(const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

// Length of a stream in bytes. The crc32 instruction takes 3 cycles, but a new one can start every
// cycle. So the checksums of three streams are computed at the same time and joined afterwards.
// Streams are short, because gRPC receives data in pieces of 64 KiB.
constexpr size_t kStreamBytes = 1024;

using ShiftTables = std::array<std::array<uint32_t, 256>, 4>;

// tables[k][b] is the remainder of a state whose byte k is b, followed by `num_bytes` zero bytes.
constexpr ShiftTables MakeShiftTables(size_t num_bytes) {
  const uint32_t factor = AppendZeros(num_bytes);
  ShiftTables tables = {};
  for (int k = 0; k < 4; ++k) {
    for (int bit = 0; bit < 8; ++bit) {
      tables[k][1 << bit] = Multiply(uint32_t{1} << (8 * k + bit), factor);
    }
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const uint32_t lowest = byte & (~byte + 1);
      tables[k][byte] = tables[k][byte ^ lowest] ^ tables[k][lowest];
    }
  }
  return tables;
}

constexpr ShiftTables kShiftOneStream = MakeShiftTables(kStreamBytes);

uint32_t ShiftOneStream(uint32_t state) {
  return kShiftOneStream[0][state & 0xff] ^ kShiftOneStream[1][(state >> 8) & 0xff] ^
         kShiftOneStream[2][(state >> 16) & 0xff] ^ kShiftOneStream[3][state >> 24];
}

__attribute__((target("sse4.2"))) uint32_t ExtendSse42(uint32_t state, const uint8_t* data,
                                                       size_t size) {
  for (; size >= 3 * kStreamBytes; data += 3 * kStreamBytes, size -= 3 * kStreamBytes) {
    uint64_t first = state;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kStreamBytes; i += 8) {
      first = _mm_crc32_u64(first, Load(data + i));
      second = _mm_crc32_u64(second, Load(data + kStreamBytes + i));
      third = _mm_crc32_u64(third, Load(data + 2 * kStreamBytes + i));
    }
    const uint32_t joined = ShiftOneStream(static_cast<uint32_t>(first));
    state = ShiftOneStream(joined ^ static_cast<uint32_t>(second)) ^ static_cast<uint32_t>(third);
  }
  uint64_t wide = state;
  for (; size >= 8; data += 8, size -= 8) wide = _mm_crc32_u64(wide, Load(data));
  state = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) state = _mm_crc32_u8(state, *data);
  return state;
}

// Returns the factors that move a lane of 128 bits by `step_bytes`. The exponents of x follow from:
//   8 * step_bytes: the distance in bits
//   +64 for the low half, which holds the higher powers
//   -1, because the product of two mirrored halves is shifted by one bit
//   -32, because a constant in the low 32 bits of its half counts as x^32 times itself
constexpr FoldFactors FactorsFor(size_t step_bytes) {
  return {.low = PowerOfX(8 * step_bytes + 31), .high = PowerOfX(8 * step_bytes - 33)};
}

// Minimum size for folding. Smaller data is not faster with folding, because its final step takes
// as long as 3 KiB of data.
constexpr size_t kMinFoldedBytes = 4096;

struct ReadyFolding {
  const Folding* folding;  // null means that the processor has none
  FoldFactors factors;
};

ReadyFolding MakeReady(const Folding* folding) {
  if (folding == nullptr) return {};
  return {folding, FactorsFor(folding->step_bytes)};
}

const ReadyFolding& BestFolding() {
  static const ReadyFolding best = MakeReady(FoldingAt(0));
  return best;
}

// Returns the state of the checksum after `data`, if `state` is that before `data`. `size` is a
// positive multiple of the folding's step_bytes.
uint32_t ExtendFolding(const ReadyFolding& by, uint32_t state, const uint8_t* data, size_t size,
                       uint8_t* copy, bool streams) {
  uint8_t folded[kMostStepBytes];
  by.folding->fold(state, by.factors, data, size, copy, streams, folded);
  return ExtendSse42(0, folded, by.folding->step_bytes);
}

// Returns the state of the checksum after `data`, if `state` is that before `data`. If `copy` is
// not null, also copies `data` there.
uint32_t Extend(const ReadyFolding& by, uint32_t state, const uint8_t* data, size_t size,
                uint8_t* copy, CopyTo copy_to) {
  if (by.folding != nullptr && size >= kMinFoldedBytes) {
    const bool streams = copy != nullptr && copy_to == CopyTo::kMemory;
    if (streams) {
      const size_t head = -reinterpret_cast<uintptr_t>(copy) % kStreamAlignment;
      std::memcpy(copy, data, head);
      state = ExtendSse42(state, copy, head);
      data += head;
      size -= head;
      copy += head;
    }
    const size_t folded = size / by.folding->step_bytes * by.folding->step_bytes;
    state = ExtendFolding(by, state, data, folded, copy, streams);
    data += folded;
    size -= folded;
    if (copy != nullptr) copy += folded;
  }
  if (copy == nullptr || size == 0) return ExtendSse42(state, data, size);
  // Each piece is read into the first-level cache once, and copied from there.
  constexpr size_t kPieceBytes = 12 << 10;
  for (size_t begin = 0; begin < size; begin += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, size - begin);
    std::memcpy(copy + begin, data + begin, piece);
    state = ExtendSse42(state, copy + begin, piece);
  }
  return state;
}

#endif

uint32_t Extend(uint32_t state, const uint8_t* data, size_t size, uint8_t* copy,
                [[maybe_unused]] CopyTo copy_to) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return Extend(BestFolding(), state, data, size, copy, copy_to);
  }
#endif
  if (copy == nullptr || size == 0) return ExtendPortable(state, data, size);
  std::memcpy(copy, data, size);
  return ExtendPortable(state, copy, size);
}

}  // namespace

uint32_t Crc32c(const void* data, size_t size, uint32_t seed) {
  return ~Extend(~seed, static_cast<const uint8_t*>(data), size, nullptr, CopyTo::kCaches);
}

uint32_t Crc32cCopy(void* destination, const void* source, size_t size, uint32_t seed,
                    CopyTo copy_to) {
  return ~Extend(~seed, static_cast<const uint8_t*>(source), size,
                 static_cast<uint8_t*>(destination), copy_to);
}

const Folding* FoldingAt(int index) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return nullptr;
  const Folding* foldings[3] = {};
  int count = 0;
  if (__builtin_cpu_supports("vpclmulqdq")) {
    if (__builtin_cpu_supports("avx512f")) foldings[count++] = &avx512_vpclmulqdq::kFolding;
    if (__builtin_cpu_supports("avx2")) foldings[count++] = &avx2_vpclmulqdq::kFolding;
  }
  foldings[count++] = &pclmulqdq::kFolding;
  if (index < count) return foldings[index];
#endif
  return nullptr;
}

#if defined(__x86_64__)
uint32_t Crc32cBy(const Folding& folding, void* destination, const void* source, size_t size,
                  uint32_t seed, bool streams) {
  return ~Extend(MakeReady(&folding), ~seed, static_cast<const uint8_t*>(source), size,
                 static_cast<uint8_t*>(destination), streams ? CopyTo::kMemory : CopyTo::kCaches);
}
#endif

uint32_t Crc32cPortable(const void* data, size_t size, uint32_t seed) {
  return ~ExtendPortable(~seed, static_cast<const uint8_t*>(data), size);
}

uint32_t Crc32cCombine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
  return Multiply(crc_a, AppendZeros(size_b)) ^ crc_b;
}

}  // namespace lodestar::crc32c
