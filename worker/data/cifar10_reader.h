// Reads CIFAR-10 in its binary version: data_batch_1.bin to data_batch_5.bin for training, and
// test_batch.bin held out. A record is one label byte and 3x32x32 pixels.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/image_dataset.h"

namespace lodestar::data {

// Opens the files. Adds a note on other files that are named like batches. Errors: NotFound naming
// a missing file; InvalidArgument for a file that is not a whole number of records; those of
// DataFile.
absl::StatusOr<ImageCorpus> OpenCifar10(const std::string& folder);

// Checks that the folder does not hold CIFAR-100, or CIFAR-10 in its Python version or compressed.
// Errors: InvalidArgument naming the version that is read here, and how to get it.
absl::Status CheckNoOtherCifar(const std::string& folder);

// Returns true if the folder has any of the files.
bool LooksLikeCifar10Folder(const std::string& folder);

// Returns true if the folder has all of the files.
bool HasAllCifar10Files(const std::string& folder);

// Returns the names of the files, for messages.
std::string Cifar10FileNames();

}  // namespace lodestar::data
