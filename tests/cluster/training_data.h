// Small data sets whose content is a formula: enough for a model to learn from, and the same on
// every machine.
#pragma once

#include "worker/data/testing/test_folder.h"

namespace lodestar {

inline constexpr int kImageSide = 8;
inline constexpr int kImageClasses = 4;

// IDX files of kImageSide x kImageSide images: 150 for training, 9 held out.
void WriteImages(const data::TestFolder& folder);

// The same, but every image is the same one, so that the order of samples cannot matter.
void WriteEqualImages(const data::TestFolder& folder);

// A text of 4000 bytes.
void WriteText(const data::TestFolder& folder);

}  // namespace lodestar
