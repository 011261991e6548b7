// The MNIST family: a folder with four IDX files, each gzip-compressed or not. The t10k files are
// the held-out part.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/image_dataset.h"

namespace lodestar::data {

// Errors: NotFound naming a missing file; InvalidArgument for gzip damage, a wrong magic number,
// sizes that do not match the header, unequal numbers of images and labels, train and t10k images
// of different sizes; those of DataFile.
absl::StatusOr<ImageCorpus> OpenIdx(const std::string& folder);

// True if the folder has any of the files.
bool LooksLikeIdxFolder(const std::string& folder);

// True if the folder has all of them.
bool HasAllIdxFiles(const std::string& folder);

// What OpenIdxDataset() looks for, for messages.
std::string IdxFileNames();

}  // namespace lodestar::data
