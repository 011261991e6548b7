// Says what a file of tokens holds, by its own bytes: its header, its width, and what it is instead
// of tokens. It looks at one file at a time and does not know the model.
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

// Ends of the names of files of tokens. DataTrove writes .ds.
inline constexpr absl::string_view kTokenFileSuffixes[] = {".bin", ".npy", ".ds"};

struct TokenFileFacts {
  std::string writer = {};     // of the header: "llm.c", "NeMo", "NumPy"; empty without a header
  std::string tokenizer = {};  // "GPT-2", "Llama 3"; empty if the header does not say
  int64_t vocabulary = 0;      // of `tokenizer`; 0 means unknown
  int64_t header_bytes = 0;    // tokens follow, to the end of the file
  int64_t token_bytes = 0;     // 2 or 4, by the header; 0 without a header
  // What the bytes behind the header say where it says nothing. Both are false for short files.
  // A short header and a few sentinels (-1, -100) do not change them.
  bool looks_like_uint32 = false;  // every second uint16 is the upper half of a number below 2^21
  bool is_never_uint16 = false;    // every second uint16 is zero
  bool is_never_uint32 = false;    // many uint32 are 2^21 or above, which no vocabulary has
};

// True if the name ends in one of kTokenFileSuffixes.
bool HasTokenFileName(absl::string_view path);

// True if a file that starts with these bytes has a header that DetectTokenFile() reads or refuses.
bool HasTokenHeader(absl::Span<const uint8_t> start);

// Reads the header and three parts of the file. Errors: those of DataFile::Read(); InvalidArgument
// that names the path, what was found and how to convert it, for a header that is unknown, of other
// data, damaged, or that does not match the size; and for numbers of another type without a header
// (int64, float32, float64, int32 with negative numbers, big-endian numbers), under which every
// reading as tokens is wrong. Big-endian uint16 is refused only where it is clear.
absl::StatusOr<TokenFileFacts> DetectTokenFile(const DataFile& file);

}  // namespace lodestar::data
