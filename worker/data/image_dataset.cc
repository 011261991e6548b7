// SPDX-License-Identifier: Apache-2.0

#include "worker/data/image_dataset.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/params/model_spec.h"
#include "common/runtime/status_macros.h"
#include "worker/data/content_hash.h"
#include "worker/data/heldout_copies.h"

namespace lodestar::data {
namespace {

constexpr float kPixelScale = 1.0f / 255.0f;

absl::Status CheckShape(const ImageCorpus& corpus, const ImageInput& input) {
  if (input.is_flat ? corpus.shape.num_pixels() == input.shape.num_pixels()
                    : corpus.shape == input.shape) {
    return absl::OkStatus();
  }
  const std::string wanted =
      input.is_flat ? absl::StrCat(input.shape.num_pixels(), " pixels") : input.shape.ToString();
  return absl::InvalidArgumentError(absl::StrCat(
      corpus.train.front().images->path(), ": images are ", corpus.shape.ToString(), " (",
      corpus.shape.num_pixels(), " pixels), but ", params::ModelInWords(input.model_name),
      " takes ", wanted, "; choose a model for this size of image"));
}

absl::Status CheckLabels(const ImageFile& file, const ImageInput& input) {
  for (int64_t i = 0; i < file.num_images(); ++i) {
    if (file.labels[i] < input.num_classes) continue;
    const LabelPlaces& places = file.label_places;
    return absl::InvalidArgumentError(absl::StrCat(
        places.file->path(), ": the label at offset ", places.offset + i * places.stride, " is ",
        file.labels[i], ", but ", params::ModelInWords(input.model_name), " has ",
        input.num_classes, " classes (0 to ", input.num_classes - 1,
        "); use a model with more classes, or correct the label"));
  }
  return absl::OkStatus();
}

int64_t CountImages(const std::vector<ImageFile>& files) {
  int64_t count = 0;
  for (const ImageFile& file : files) count += file.num_images();
  return count;
}

class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(std::shared_ptr<const ImageCorpus> corpus)
      : corpus_(std::move(corpus)),
        num_train_(CountImages(corpus_->train)),
        num_heldout_(CountImages(corpus_->heldout)) {}

  absl::Status Validate(const ImageInput& input, StopRequested stop_requested) {
    if (num_train_ == 0 || num_heldout_ == 0) {
      return absl::InvalidArgumentError(absl::StrCat("empty corpus: ", corpus_->format,
                                                     " data has ", num_train_, " training and ",
                                                     num_heldout_,
                                                     " held-out images, but both need at least 1; "
                                                     "give other data"));
    }
    RETURN_IF_ERROR(CheckShape(*corpus_, input));
    for (const ImageFile& file : corpus_->train) RETURN_IF_ERROR(CheckLabels(file, input));
    for (const ImageFile& file : corpus_->heldout) RETURN_IF_ERROR(CheckLabels(file, input));
    ContentHash hash;
    hash.AddText(corpus_->format);
    hash.AddNumber(corpus_->train.size());
    for (const std::shared_ptr<const DataFile>& file : corpus_->files) {
      ContentHash::Pieces content;
      RETURN_IF_ERROR(
          ScanDataFile(*file, 0, stop_requested, [&](int64_t, absl::Span<const uint8_t> piece) {
            content.Add(piece);
            return absl::OkStatus();
          }));
      hash.AddBytes(content);
    }
    fingerprint_ = hash.Hex();
    return absl::OkStatus();
  }

  int64_t num_train_samples() const override { return num_train_; }
  int64_t num_heldout_samples() const override { return num_heldout_; }
  int64_t tokens_per_sample() const override { return 1; }
  const std::string& fingerprint() const override { return fingerprint_; }

  std::string Describe() const override {
    std::string text = absl::StrCat(corpus_->format, ": ", corpus_->files.size(), " files, images ",
                                    corpus_->shape.ToString(), ", ", num_train_, " for training, ",
                                    num_heldout_, " held out");
    for (const std::string& note : corpus_->notes) absl::StrAppend(&text, "; ", note);
    return text;
  }

  absl::Status ReadTrain(absl::Span<const SampleRef> samples, HostBatch* batch) const override {
    Prepare(samples.size(), batch);
    for (size_t row = 0; row < samples.size(); ++row) {
      RETURN_IF_ERROR(CopyImage(corpus_->train, samples[row].index, num_train_, row, batch));
    }
    return absl::OkStatus();
  }

  absl::Status ReadHeldout(absl::Span<const int64_t> samples, HostBatch* batch) const override {
    Prepare(samples.size(), batch);
    for (size_t row = 0; row < samples.size(); ++row) {
      RETURN_IF_ERROR(CopyImage(corpus_->heldout, samples[row], num_heldout_, row, batch));
    }
    return absl::OkStatus();
  }

 private:
  void Prepare(size_t num_samples, HostBatch* batch) const {
    batch->num_samples = static_cast<int64_t>(num_samples);
    batch->tokens.clear();
    batch->features.resize(num_samples * corpus_->shape.num_pixels());
    batch->targets.resize(num_samples);
  }

  absl::Status CopyImage(const std::vector<ImageFile>& files, int64_t index, int64_t limit,
                         size_t row, HostBatch* batch) const {
    if (index < 0 || index >= limit) {
      return absl::OutOfRangeError(absl::StrCat("this worker was to read image ", index,
                                                ", but its data has only ", limit, " images"));
    }
    auto file = files.begin();
    while (index >= file->num_images()) {
      index -= file->num_images();
      ++file;
    }
    const int64_t num_pixels = corpus_->shape.num_pixels();
    std::vector<uint8_t> pixels(num_pixels);
    RETURN_IF_ERROR(file->images->Read(file->image_offset + index * file->image_stride,
                                       absl::MakeSpan(pixels)));
    float* out = batch->features.data() + static_cast<int64_t>(row) * num_pixels;
    for (int64_t i = 0; i < num_pixels; ++i) out[i] = pixels[i] * kPixelScale;
    batch->targets[row] = file->labels[index];
    return absl::OkStatus();
  }

  std::shared_ptr<const ImageCorpus> corpus_;
  int64_t num_train_;
  int64_t num_heldout_;
  std::string fingerprint_;
};

}  // namespace

std::string ImageShape::ToString() const { return absl::StrCat(channels, "x", height, "x", width); }

absl::StatusOr<std::vector<uint8_t>> ReadLabels(const LabelPlaces& places, int64_t count) {
  std::vector<uint8_t> labels;
  labels.reserve(count);
  int64_t next = places.offset;
  RETURN_IF_ERROR(ScanDataFile(*places.file, places.offset, NeverStopped,
                               [&](int64_t begin, absl::Span<const uint8_t> piece) {
                                 const int64_t end = begin + static_cast<int64_t>(piece.size());
                                 for (; next < end && static_cast<int64_t>(labels.size()) < count;
                                      next += places.stride) {
                                   labels.push_back(piece[next - begin]);
                                 }
                                 return absl::OkStatus();
                               }));
  return labels;
}

absl::Status LeaveOutHeldoutCopies(ImageCorpus* corpus) {
  HeldoutCopies copies;
  for (const ImageFile& file : corpus->heldout) {
    RETURN_IF_ERROR(copies.Add(*file.images, file.image_offset));
  }
  std::vector<ImageFile> kept;
  std::string example;
  for (ImageFile& file : corpus->train) {
    ASSIGN_OR_RETURN(const DataFile* twin, copies.Find(*file.images, file.image_offset));
    if (twin == nullptr) {
      kept.push_back(std::move(file));
    } else {
      example = absl::StrCat(file.images->path(), " has the same images as ", twin->path());
    }
  }
  const size_t num_left_out = corpus->train.size() - kept.size();
  corpus->train = std::move(kept);
  if (corpus->train.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no training image is left, because all training images are also held-out images (",
        example, "); copy these files again"));
  }
  if (num_left_out > 0) {
    corpus->notes.push_back(absl::StrCat(
        num_left_out, num_left_out == 1 ? " file is" : " files are",
        " not trained on, because the held-out data have the same images; for example, ", example));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeImageDataset(std::shared_ptr<const ImageCorpus> corpus,
                                                          const ImageInput& input,
                                                          StopRequested stop_requested) {
  auto dataset = std::make_unique<ImageDataset>(std::move(corpus));
  RETURN_IF_ERROR(dataset->Validate(input, stop_requested));
  return dataset;
}

}  // namespace lodestar::data
