// SPDX-License-Identifier: Apache-2.0

// Labelled images with one byte per channel and pixel, as IDX and CIFAR-10 both store them. Pixels
// are read from the files when they are needed. Labels are kept in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/data_file.h"
#include "worker/data/dataset.h"

namespace lodestar::data {

struct ImageShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t num_pixels() const { return channels * height * width; }
  std::string ToString() const;  // As in "3x32x32".
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

// The image size and the number of classes that a model expects.
struct ImageInput {
  std::string model_name;
  bool is_flat = false;  // True if only the number of pixels counts.
  ImageShape shape;      // The shape of one image. It is {1, 1, inputs} if is_flat.
  int64_t num_classes = 0;
};

// The places of the labels in one file. Label i is at offset + i * stride.
struct LabelPlaces {
  std::shared_ptr<const DataFile> file;
  int64_t offset = 0;
  int64_t stride = 1;
};

// The images of one file. The first pixel of image i is at image_offset + i * image_stride. The
// reader must have checked that all images lie within the file.
struct ImageFile {
  std::shared_ptr<const DataFile> images;
  int64_t image_offset = 0;
  int64_t image_stride = 0;
  LabelPlaces label_places;
  std::vector<uint8_t> labels;  // One label per image.
  int64_t num_images() const { return static_cast<int64_t>(labels.size()); }
};

// Reads `count` labels. Errors: those of DataFile::Read().
absl::StatusOr<std::vector<uint8_t>> ReadLabels(const LabelPlaces& places, int64_t count);

struct ImageCorpus {
  std::string format;  // Used in messages and in the fingerprint.
  ImageShape shape;
  std::vector<std::shared_ptr<const DataFile>> files;  // All files, in order.
  std::vector<ImageFile> train;
  std::vector<ImageFile> heldout;
  // Notes for the log.
  std::vector<std::string> notes = {};
};

// Removes training files whose images equal those of a held-out file. Adds a note with the number
// of removed files. Errors: InvalidArgument if no training file is left; those of DataFile::Read().
absl::Status LeaveOutHeldoutCopies(ImageCorpus* corpus);

// Makes the data set. Pixels are divided by 255. Reads every byte once. Errors: InvalidArgument if
// there are no images, if their size is not the model's, or if a label is not a class of the model;
// those of ScanDataFile().
absl::StatusOr<std::unique_ptr<Dataset>> MakeImageDataset(
    std::shared_ptr<const ImageCorpus> corpus, const ImageInput& input,
    StopRequested stop_requested = NeverStopped);

}  // namespace lodestar::data
