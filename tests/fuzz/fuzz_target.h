// SPDX-License-Identifier: Apache-2.0

// Declares a target of fuzzing: a table of cases that read untrusted bytes, with valid inputs to
// start from. A target runs with libFuzzer and with the driver of this folder (driver.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/runtime/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lodestar::fuzz {

// A parser under test. The first byte of an input is the place of its case in the table. Add new
// cases at the end, so that kept inputs still belong to their cases.
struct Case {
  const char* name;
  // Runs the parser. Ends the process if a check fails.
  void (*run)(absl::string_view bytes);
  // Returns valid inputs, made by our own writers: the first files of the corpus.
  std::vector<std::string> (*seeds)();
};

// Returns the cases of the linked target.
absl::Span<const Case> Cases();

// Number of inputs so far that a parser has accepted.
inline int64_t num_accepted = 0;
inline void Accept() { ++num_accepted; }

// Checks that an error has a text.
inline void Refuse(const absl::Status& status) {
  LODESTAR_CHECK(!status.ok() && !status.message().empty()) << status;
}

// Parses, formats, and parses again: both results must format to the same text.
template <typename Parse, typename Format>
void CheckText(absl::string_view bytes, Parse parse, Format format) {
  const auto taken = parse(std::string(bytes));
  if (!taken.ok()) return Refuse(taken.status());
  Accept();
  const std::string again = format(*taken);
  const auto back = parse(again);
  LODESTAR_CHECK(back.ok()) << back.status() << " of " << again;
  LODESTAR_CHECK(format(*back) == again) << again << " became " << format(*back);
}

// Takes a number from the front of an input. Returns 0 at the end of the input.
inline uint8_t TakeByte(absl::string_view& bytes) {
  if (bytes.empty()) return 0;
  const auto value = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  return value;
}
// Takes a piece that has its length in two bytes before it. If the input is shorter, returns what
// is there.
inline absl::string_view TakePiece(absl::string_view& bytes) {
  size_t size = TakeByte(bytes);
  size |= size_t{TakeByte(bytes)} << 8;
  const absl::string_view piece = bytes.substr(0, size);
  bytes.remove_prefix(piece.size());
  return piece;
}
// Returns `bytes` in the form that TakePiece() reads.
inline std::string Piece(absl::string_view bytes) {
  std::string piece;
  piece.push_back(static_cast<char>(bytes.size()));
  piece.push_back(static_cast<char>(bytes.size() >> 8));
  return piece.append(bytes.data(), bytes.size());
}

}  // namespace lodestar::fuzz
