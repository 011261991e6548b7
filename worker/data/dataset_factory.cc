#include "worker/data/dataset_factory.h"

#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/cifar10_reader.h"
#include "worker/data/corpus_files.h"
#include "worker/data/format_detection.h"
#include "worker/data/idx_reader.h"
#include "worker/data/image_dataset.h"
#include "worker/data/text_reader.h"
#include "worker/data/tokens_reader.h"
#include "worker/data/window_dataset.h"

namespace lodestar {
namespace {

bool IsImageFormat(DataFormat format) {
  return format == DataFormat::kIdx || format == DataFormat::kCifar10;
}

absl::Status CheckPath(const DatasetConfig& config) {
  if (config.path.empty()) {
    return absl::InvalidArgumentError("--data is empty; give a file or a folder");
  }
  if (IsFolder(config.path) || IsFile(config.path)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("--data=", config.path, ": no such file or folder on this machine"));
}

absl::StatusOr<DataFormat> ChooseFormat(const DatasetConfig& config) {
  if (config.format == "auto" || config.format.empty()) return DetectDataFormat(config.path);
  return ParseDataFormat(config.format);
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenForGpt(const DatasetConfig& config, DataFormat format,
                                                    const ModelSpec& model, const GptSpec& spec) {
  const WindowCut cut = {spec.context, spec.vocabulary, config.seed};
  if (format == DataFormat::kText) return OpenTextDataset(config.path, cut);
  if (format == DataFormat::kTokens) return OpenTokensDataset(config.path, cut);
  return absl::InvalidArgumentError(absl::StrCat(
      config.path, " holds ", DataFormatName(format), " images, but model ", model.name,
      " is a gpt and needs text or tokens; mlp and cnn models take images"));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenForClassifier(const DatasetConfig& config,
                                                           DataFormat format,
                                                           const ImageInput& input) {
  if (!IsImageFormat(format)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.path, " holds ", DataFormatName(format), ", but model ",
                     input.model_name, " needs images: a folder with IDX files (", IdxFileNames(),
                     ") or CIFAR-10 (", Cifar10FileNames(), "); gpt models take text and tokens"));
  }
  if (!IsFolder(config.path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.path, " is a file, but ", DataFormatName(format), " data is a folder"));
  }
  return format == DataFormat::kIdx ? OpenIdxDataset(config.path, input)
                                    : OpenCifar10Dataset(config.path, input);
}

// One overload per architecture: what data it takes.
class Opener {
 public:
  Opener(const DatasetConfig& config, DataFormat format, const ModelSpec& model)
      : config_(config), format_(format), model_(model) {}

  absl::StatusOr<std::unique_ptr<Dataset>> operator()(const GptSpec& spec) const {
    return OpenForGpt(config_, format_, model_, spec);
  }
  absl::StatusOr<std::unique_ptr<Dataset>> operator()(const MlpSpec& spec) const {
    const ImageShape shape = {1, 1, spec.widths.front()};
    return OpenForClassifier(config_, format_, {model_.name, true, shape, spec.widths.back()});
  }
  absl::StatusOr<std::unique_ptr<Dataset>> operator()(const CnnSpec& spec) const {
    const ImageShape shape = {spec.image_channels, spec.image_height, spec.image_width};
    return OpenForClassifier(config_, format_, {model_.name, false, shape, spec.num_classes});
  }
  absl::StatusOr<std::unique_ptr<Dataset>> operator()(const ClientModelSpec&) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", model_.name, " is supplied by a client of its own; gpu_worker cannot train it"));
  }

 private:
  const DatasetConfig& config_;
  DataFormat format_;
  const ModelSpec& model_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetConfig& config,
                                                     const ModelSpec& model) {
  RETURN_IF_ERROR(ValidateModelSpec(model));
  RETURN_IF_ERROR(CheckPath(config));
  ASSIGN_OR_RETURN(const DataFormat format, ChooseFormat(config));
  return std::visit(Opener(config, format, model), model.architecture);
}

}  // namespace lodestar
