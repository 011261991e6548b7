// SPDX-License-Identifier: Apache-2.0

// Decides by names and sizes which files of a corpus are for training and which are held out. No
// file is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar::data {

// If names do not say what is held out, 1 / kHeldoutDivisor of the tokens is held out: either the
// end of every file, or whole files.
inline constexpr int64_t kHeldoutDivisor = 10;

enum class FilePart : uint8_t {
  // For training, except for the last tenth, which is held out.
  kCut,
  kTrain,    // The whole file is for training.
  kHeldout,  // The whole file is held out.
  // Not used: a test set, or held-out data if there is other held-out data.
  kLeftOut,
};

// Returns the part that a path names: "train", "val", "valid", "validation" or "test". In the name
// of a file it may be one of several words ("fineweb_val_000001.bin"), separated by any characters
// that are not letters. A folder must have the word as its whole name ("val/1.bin"). kCut means
// that the path names no part.
FilePart PartByName(absl::string_view relative_path);

// Returns true for files that describe a data set but are no part of it: README, LICENSE, checksums
// and others, with any ending.
bool IsDocumentation(absl::string_view relative_path);

enum class NameRule : uint8_t {
  kEachByItself,
  // For text, in which any word may be part of a file's name. Names decide only if both are true:
  // - At least one name says that its file is for training.
  // - The names of all files, except documentation, give a part.
  kAllOrNone,
};

struct NameSplit {
  std::vector<FilePart> parts;
  // Set if names do not count. `because_of` is the index of a file whose name gives no part.
  // `example` is the index of a file that would have been held out or left out.
  struct Ignored {
    size_t because_of = 0;
    size_t example = 0;
  };
  std::optional<Ignored> ignored = std::nullopt;
};

// Returns the parts of the files with these relative paths, by their names:
// - If there are files for training, weak names count too: "dev", "heldout", "eval", and the first
//   or last word of a folder's name ("validation-shuffled").
// - Of val, dev, heldout and eval, the first one that occurs is held out. Files with the others are
//   left out, like test sets.
// - If any file is held out, all files without a held-out or test name are for training as a whole.
// - If `has_other_heldout`, files that would be held out are left out, because held-out data is
//   elsewhere.
// - If the corpus has only one file, its name does not count.
NameSplit SplitByNames(const std::vector<absl::string_view>& relative_paths, NameRule rule,
                       bool has_other_heldout);

// Returns the typical file size in tokens: at least half of all tokens are in files of at most this
// size. 0 means that there are no files.
int64_t TypicalFileTokens(std::vector<int64_t> num_tokens);

// Returns parts of files with these numbers of tokens. Whole files with about a tenth of all
// tokens, spread evenly among the others, are kHeldout. The others are kTrain. Machines that have
// the files in the same order get the same parts.
std::vector<FilePart> HoldOutWholeFiles(const std::vector<int64_t>& num_tokens);

}  // namespace lodestar::data
