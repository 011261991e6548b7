// SPDX-License-Identifier: Apache-2.0

#include "tests/cluster/training_data.h"

#include <functional>
#include <string>

#include "common/runtime/random.h"

namespace lodestar {
namespace {

constexpr uint32_t kTrainImages = 150;
constexpr uint32_t kHeldoutImages = 9;
constexpr int kTextBytes = 4000;

// The place of a bright stripe shows the class; the rest is noise.
char PixelOf(uint32_t image, uint32_t pixel) {
  const uint32_t noise = Philox(/*key=*/7, image, pixel)[0] % 96;
  const bool is_stripe = pixel / 2 % kImageClasses == image % kImageClasses;
  return static_cast<char>(noise + (is_stripe ? 120 : 0));
}

void WritePart(const data::TestFolder& folder, const std::string& part, uint32_t count,
               const std::function<uint32_t(uint32_t)>& content_of) {
  std::string images = data::BigEndianBytes({0x803, count, kImageSide, kImageSide});
  std::string labels = data::BigEndianBytes({0x801, count});
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t content = content_of(i);
    for (uint32_t pixel = 0; pixel < kImageSide * kImageSide; ++pixel) {
      images.push_back(PixelOf(content, pixel));
    }
    labels.push_back(static_cast<char>(content % kImageClasses));
  }
  folder.Write(part + "-images-idx3-ubyte", images);
  folder.Write(part + "-labels-idx1-ubyte", labels);
}

}  // namespace

void WriteImages(const data::TestFolder& folder) {
  WritePart(folder, "train", kTrainImages, [](uint32_t i) { return i; });
  WritePart(folder, "t10k", kHeldoutImages, [](uint32_t i) { return kTrainImages + i; });
}

void WriteEqualImages(const data::TestFolder& folder) {
  WritePart(folder, "train", kTrainImages, [](uint32_t) { return 1; });
  WritePart(folder, "t10k", kHeldoutImages, [](uint32_t) { return 1; });
}

void WriteText(const data::TestFolder& folder) {
  std::string text;
  for (uint32_t word = 0; text.size() < kTextBytes; ++word) {
    const uint32_t bits = Philox(/*key=*/11, /*stream=*/0, word)[0];
    for (uint32_t i = 0; i < 2 + bits % 5; ++i) {
      text.push_back(static_cast<char>('a' + (bits % 7 + 3 * i) % 26));
    }
    text.push_back(' ');
  }
  text.resize(kTextBytes);
  folder.Write("text.txt", text);
}

}  // namespace lodestar
