// Labelled images of one byte per channel and pixel, in mapped files: what the IDX and CIFAR-10
// formats have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/file_bytes.h"

namespace lodestar {

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

// Where the images of one file lie: image i has its label at label_offset + i * label_stride and
// its first pixel at image_offset + i * image_stride of the files, whose sizes the reader has
// checked.
struct ImageFile {
  const FileBytes* images = nullptr;
  int64_t image_offset = 0;
  int64_t image_stride = 0;
  const FileBytes* labels = nullptr;
  int64_t label_offset = 0;
  int64_t label_stride = 0;
  int64_t num_images = 0;
};

struct ImageCorpus {
  std::string format;  // for messages and the fingerprint
  ImageShape shape;
  std::vector<std::unique_ptr<FileBytes>> owned;
  std::vector<ImageFile> train;
  std::vector<ImageFile> heldout;
};

// Pixels are divided by 255. Reads every byte once.
// Errors: InvalidArgument for images of another size than the model's, labels out of its range, no
// images.
absl::StatusOr<std::unique_ptr<Dataset>> MakeImageDataset(ImageCorpus corpus,
                                                          const ImageInput& input);

}  // namespace lodestar
