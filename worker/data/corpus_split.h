// Which files of a corpus are for training and which are held out, by their names. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar {

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

enum class NameRule : uint8_t {
  kEachByItself,
  // Names count only if every one of them says something and one says training: what a source tree
  // calls a test is text like any other.
  kAllOrNone,
};

// The parts of the files with these relative paths. As soon as one is held out, all others are for
// training as a whole; test sets are left out. `has_other_heldout`: held-out data is elsewhere, so
// that files held out by their names are left out. A corpus of one file has only that.
std::vector<FilePart> SplitByNames(const std::vector<absl::string_view>& relative_paths,
                                   NameRule rule, bool has_other_heldout);

}  // namespace lodestar
