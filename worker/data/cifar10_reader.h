// SPDX-License-Identifier: Apache-2.0

// Reads CIFAR-10 in its binary version: data_batch_1.bin to data_batch_5.bin for training, and
// test_batch.bin held out. A record is one label byte and 3x32x32 pixels.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/image_dataset.h"

namespace lodestar::data {

// Opens the files. Adds a note to the result if the folder has other files that are named like
// batches. Errors: NotFound naming a missing file; InvalidArgument for a file that is not a whole
// number of records; those of DataFile.
absl::StatusOr<ImageCorpus> OpenCifar10(const std::string& folder);

// Checks that the folder does not hold CIFAR-100, the Python version of CIFAR-10, or a compressed
// archive. Errors: InvalidArgument naming the version that this reader needs, and how to get it.
absl::Status CheckNoOtherCifar(const std::string& folder);

// Returns true if the folder has at least one file of CIFAR-10.
bool LooksLikeCifar10Folder(const std::string& folder);

// Returns true if the folder has all six files of CIFAR-10.
bool HasAllCifar10Files(const std::string& folder);

// Returns the names of the six files, for messages.
std::string Cifar10FileNames();

}  // namespace lodestar::data
