// Labelled images of one byte per channel and pixel, in files: what the IDX and CIFAR-10 formats
// have in common. Pixels are read when they are needed; labels are kept.
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
  std::string ToString() const;  // "3x32x32"
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

// What the model takes and tells apart.
struct ImageInput {
  std::string model_name;
  bool is_flat = false;  // only the number of pixels counts
  ImageShape shape;      // {1, 1, inputs} if is_flat
  int64_t num_classes = 0;
};

// Where the labels of one file lie: label i at offset + i * stride.
struct LabelPlaces {
  std::shared_ptr<const DataFile> file;
  int64_t offset = 0;
  int64_t stride = 1;
};

// The images of one file: image i has its first pixel at image_offset + i * image_stride. The
// reader has checked that all lie within the files.
struct ImageFile {
  std::shared_ptr<const DataFile> images;
  int64_t image_offset = 0;
  int64_t image_stride = 0;
  LabelPlaces label_places;
  std::vector<uint8_t> labels;  // one per image
  int64_t num_images() const { return static_cast<int64_t>(labels.size()); }
};

// Reads `count` labels. Errors: those of DataFile::Read().
absl::StatusOr<std::vector<uint8_t>> ReadLabels(const LabelPlaces& places, int64_t count);

struct ImageCorpus {
  std::string format;  // for messages and the fingerprint
  ImageShape shape;
  std::vector<std::shared_ptr<const DataFile>> files;  // all, in order
  std::vector<ImageFile> train;
  std::vector<ImageFile> heldout;
  std::vector<std::string> notes = {};  // what is worth knowing, for the log
};

// Takes files out of the training data whose images are those of a held-out file, and notes how
// many. Errors: InvalidArgument if no file is left; those of DataFile::Read().
absl::Status LeaveOutHeldoutCopies(ImageCorpus* corpus);

// Pixels are divided by 255. Reads every byte once.
// Errors: InvalidArgument for images of another size than the model's, labels out of its range, no
// images; those of ScanDataFile().
absl::StatusOr<std::unique_ptr<Dataset>> MakeImageDataset(
    std::shared_ptr<const ImageCorpus> corpus, const ImageInput& input,
    StopRequested stop_requested = NeverStopped);

}  // namespace lodestar::data
