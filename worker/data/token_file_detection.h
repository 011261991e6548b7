// SPDX-License-Identifier: Apache-2.0

// Finds out what a file of tokens holds from its bytes: its header, the width of its tokens, or
// what it holds instead of tokens. Each file is examined by itself, without a model.
//
// Three headers are known. llm.c and NeMo begin with 256 int32: a magic number, a version, the
// number of tokens and, for NeMo, the bytes per token. NumPy's .npy begins with a description of
// one array.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/data_file.h"

namespace lodestar::data {

// Endings of the names of files of tokens. DataTrove writes .ds.
inline constexpr absl::string_view kTokenFileSuffixes[] = {".bin", ".npy", ".ds"};

struct TokenFileFacts {
  // The program of the header: "llm.c", "NeMo" or "NumPy". Empty means no header.
  std::string writer = {};
  // "GPT-2" or "Llama 3". Empty means that the header does not say.
  std::string tokenizer = {};
  // Number of tokens of `tokenizer`. 0 means unknown.
  int64_t vocabulary = 0;
  // Bytes of the header. Tokens follow, to the end of the file.
  int64_t header_bytes = 0;
  // Bytes per token as the header says: 2 or 4. 0 means that there is no header.
  int64_t token_bytes = 0;
  // The facts below come from the data of files without a header. They stay the same if the file
  // begins with some short header, or has a few sentinels (-1, -100). If the file is too short,
  // only is_never_uint32 may be true.

  // True if every second uint16 can be the upper half of a number below 2^21.
  bool looks_like_uint32 = false;
  // True if every second uint16 is zero.
  bool is_never_uint16 = false;
  // True if many uint32 are 2^21 or above, which no vocabulary has.
  bool is_never_uint32 = false;
};

// Returns true if the name ends with one of kTokenFileSuffixes.
bool HasTokenFileName(absl::string_view path);

// Returns true if a file that starts with these bytes has a header that DetectTokenFile() reads or
// refuses.
bool HasTokenHeader(absl::Span<const uint8_t> start);

// Reads the header and three parts of the file. Errors: those of DataFile::Read(); InvalidArgument
// naming the path, what was found and how to convert it:
// - if the header is unknown, damaged, of other data, or does not match the size;
// - if there is no header and the numbers are int64, float32, float64, int32 with negative numbers,
//   or big-endian. Big-endian uint16 is refused only if it is certain.
absl::StatusOr<TokenFileFacts> DetectTokenFile(const DataFile& file);

}  // namespace lodestar::data
