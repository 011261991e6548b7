// SPDX-License-Identifier: Apache-2.0

// ContentHash is a 64-bit hash of a corpus, computed in one pass at several GB/s. It tells data
// sets apart, but does not protect against forgery.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar::data {

// The hash depends on the order of the calls of its methods, and on how the content is divided
// between these calls. It is the same on all machines with the same byte order.
class ContentHash {
 public:
  // Bytes that come in pieces. The hash is the same as if all bytes were passed to AddBytes() at
  // once.
  class Pieces {
   public:
    Pieces();
    // Adds a piece. All pieces but the last must be a multiple of 32 bytes long.
    void Add(absl::Span<const uint8_t> piece);

   private:
    friend class ContentHash;
    std::array<uint64_t, 4> lanes_;
    uint64_t num_bytes_ = 0;
  };

  void AddNumber(uint64_t number);
  void AddText(absl::string_view text);
  void AddBytes(absl::Span<const uint8_t> bytes);
  void AddBytes(const Pieces& bytes);
  // Returns the hash as 16 lower-case hex digits.
  std::string Hex() const;

 private:
  uint64_t state_ = 0x6c6f646573746172u;
};

}  // namespace lodestar::data
