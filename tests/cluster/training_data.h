// SPDX-License-Identifier: Apache-2.0

// Small data sets whose content is computed by formulas. A model can learn from them, and they are
// the same on every machine.
#pragma once

#include "worker/data/testing/test_folder.h"

namespace lodestar {

inline constexpr int kImageSide = 8;
inline constexpr int kImageClasses = 4;

// Writes IDX files of kImageSide x kImageSide images: 150 for training, 9 held out.
void WriteImages(const data::TestFolder& folder);

// Writes the same files with equal images, so that the order of samples cannot matter.
void WriteEqualImages(const data::TestFolder& folder);

// Writes a text of 4000 bytes.
void WriteText(const data::TestFolder& folder);

}  // namespace lodestar
