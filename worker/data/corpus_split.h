// Which files of a corpus are for training and which are held out, by their names and sizes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar::data {

// Without a split by names one part in so many is held out: of every file, or whole files.
inline constexpr int64_t kHeldoutDivisor = 10;

enum class FilePart : uint8_t {
  kCut,      // for training but for the last tenth, which is held out
  kTrain,    // all of it for training
  kHeldout,  // all of it held out
  kLeftOut,  // neither: a test set, or held-out data where other data is
};

// What the words of a path relative to the corpus say: "train", "val", "valid", "validation" or
// "test", parted by whatever is no letter, in the name of the file ("fineweb_val_000001.bin") or
// alone in that of a folder on the way ("val/1.bin"). kCut: nothing.
FilePart PartByName(absl::string_view relative_path);

// True for what lies beside a data set and is no part of it: README, LICENSE, checksums and the
// like, with any ending.
bool IsDocumentation(absl::string_view relative_path);

enum class NameRule : uint8_t {
  kEachByItself,
  // Names count only if one of them says training and all say something, but for documentation:
  // what a source tree calls a test is text like any other.
  kAllOrNone,
};

struct NameSplit {
  std::vector<FilePart> parts;
  // The index of a file whose name keeps the names of the others from counting, and of one that
  // would be held out or left out otherwise.
  struct Ignored {
    size_t because_of = 0;
    size_t example = 0;
  };
  std::optional<Ignored> ignored = std::nullopt;
};

// The parts of the files with these relative paths. Beside files for training more names count:
// "dev", "heldout" and "eval" in the name of a file, and the first or last word of a folder's name
// ("validation-shuffled"). Of val, dev, heldout and eval the first that is there is held out, and
// the others are left out, as test sets are. As soon as one is held out, all others are for
// training as a whole; test sets are left out. `has_other_heldout`: held-out data is elsewhere, so
// that files held out by their names are left out. A corpus of one file has only that.
NameSplit SplitByNames(const std::vector<absl::string_view>& relative_paths, NameRule rule,
                       bool has_other_heldout);

// The number that half of all tokens lie in files of at most so many; 0 without files.
int64_t TypicalFileTokens(std::vector<int64_t> num_tokens);

// Parts of files with these numbers of tokens: kHeldout for whole files that together have about a
// tenth of all tokens and lie evenly among the others, kTrain for these. The same on every machine
// that has the files in the same order.
std::vector<FilePart> HoldOutWholeFiles(const std::vector<int64_t>& num_tokens);

}  // namespace lodestar::data
