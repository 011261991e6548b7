// CIFAR-10, binary version: data_batch_1.bin to data_batch_5.bin for training, test_batch.bin held
// out; records of one label byte and 3x32x32 pixels.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/image_dataset.h"

namespace lodestar::data {

// Notes other files that are named as batches. Errors: NotFound naming a missing file;
// InvalidArgument for a file that is not a whole number of records; those of DataFile.
absl::StatusOr<ImageCorpus> OpenCifar10(const std::string& folder);

// Errors: InvalidArgument naming what is read here, and how to get it, if the folder holds
// CIFAR-100, or CIFAR-10 in its Python version or compressed.
absl::Status CheckNoOtherCifar(const std::string& folder);

// True if the folder has any of the files.
bool LooksLikeCifar10Folder(const std::string& folder);

// True if the folder has all of them.
bool HasAllCifar10Files(const std::string& folder);

// What OpenCifar10Dataset() looks for, for messages.
std::string Cifar10FileNames();

}  // namespace lodestar::data
