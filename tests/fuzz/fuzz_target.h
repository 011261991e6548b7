// A target of fuzzing: what reads bytes of strangers, as a table of cases, with valid inputs to
// begin from. It runs below libFuzzer and below the driver of this folder (driver.cc) alike.
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

// One parser. The first byte of an input is the case's place in the table, so new ones go to the
// end: inputs that were kept stay inputs of theirs.
struct Case {
  const char* name;
  // Ends the process if something does not hold.
  void (*run)(absl::string_view bytes);
  // Valid inputs, made by our own writers: the first files of the corpus.
  std::vector<std::string> (*seeds)();
};

// Returns the cases of the target that is linked.
absl::Span<const Case> Cases();

// How many inputs some parser has taken, of all so far.
inline int64_t num_accepted = 0;
inline void Accept() { ++num_accepted; }

// An error of ours always has a text.
inline void Refuse(const absl::Status& status) {
  LODESTAR_CHECK(!status.ok() && !status.message().empty()) << status;
}

// Reads, writes, and reads what was written: both must read as the same text.
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

// Numbers at the front of an input; 0 where it has ended.
inline uint8_t TakeByte(absl::string_view& bytes) {
  if (bytes.empty()) return 0;
  const auto value = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  return value;
}
// A piece with two bytes of length before it; what is there of it.
inline absl::string_view TakePiece(absl::string_view& bytes) {
  size_t size = TakeByte(bytes);
  size |= size_t{TakeByte(bytes)} << 8;
  const absl::string_view piece = bytes.substr(0, size);
  bytes.remove_prefix(piece.size());
  return piece;
}
// As TakePiece() reads it.
inline std::string Piece(absl::string_view bytes) {
  std::string piece;
  piece.push_back(static_cast<char>(bytes.size()));
  piece.push_back(static_cast<char>(bytes.size() >> 8));
  return piece.append(bytes.data(), bytes.size());
}

}  // namespace lodestar::fuzz
