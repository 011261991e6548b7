// SPDX-License-Identifier: Apache-2.0

// Reads data sets of the MNIST family: a folder with four IDX files, compressed with gzip or not.
// The t10k files are the held-out part.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/image_dataset.h"

namespace lodestar::data {

// Opens the files. Errors: NotFound naming a missing file; InvalidArgument for damaged gzip data, a
// wrong magic number, a size that does not match the header, different numbers of images and
// labels, or train and t10k images of different sizes; those of DataFile.
absl::StatusOr<ImageCorpus> OpenIdx(const std::string& folder);

// Returns true if the folder has at least one of the four IDX files.
bool LooksLikeIdxFolder(const std::string& folder);

// Returns true if the folder has all four IDX files.
bool HasAllIdxFiles(const std::string& folder);

// Returns the names of the four IDX files, for messages.
std::string IdxFileNames();

}  // namespace lodestar::data
