// SPDX-License-Identifier: Apache-2.0

#include "worker/data/dataset_factory.h"

#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "worker/data/cifar10_reader.h"
#include "worker/data/corpus_files.h"
#include "worker/data/idx_reader.h"
#include "worker/data/text_reader.h"

namespace lodestar::data {
namespace {

constexpr int64_t kBytesAsTokens = 256;

bool IsImageFormat(DataFormat format) {
  return format == DataFormat::kIdx || format == DataFormat::kCifar10;
}

absl::Status CheckPath(absl::string_view flag, const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode) || S_ISREG(info.st_mode)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(flag, "=", path, " is neither a file nor a folder"));
  }
  const absl::Status why = ErrnoStatus(errno, "find on this machine the path", path);
  return absl::Status(why.code(), absl::StrCat(flag, ": ", why.message()));
}

absl::StatusOr<DataFormat> ChooseFormat(const DataConfig& config) {
  if (config.format != "auto" && !config.format.empty()) return ParseDataFormat(config.format);
  ASSIGN_OR_RETURN(const DataFormat format, DetectDataFormat(config.path));
  if (config.heldout_path.empty() || IsImageFormat(format)) return format;
  ASSIGN_OR_RETURN(const DataFormat heldout, DetectDataFormat(config.heldout_path));
  if (heldout == format) return format;
  return absl::InvalidArgumentError(absl::StrCat(
      "--heldout_data=", config.heldout_path, " holds ", DataFormatName(heldout),
      ", but --data=", config.path, " holds ", DataFormatName(format),
      "; give data of the same format, or name the format of both with --data_format"));
}

absl::StatusOr<std::shared_ptr<const ImageCorpus>> OpenImages(const DataConfig& config,
                                                              DataFormat format) {
  if (!IsFolder(config.path)) {
    return absl::InvalidArgumentError(absl::StrCat(config.path, " is a file, but ",
                                                   DataFormatName(format),
                                                   " data must be a folder; give the folder"));
  }
  if (!config.heldout_path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--heldout_data=", config.heldout_path, " is only for text and tokens; ",
        DataFormatName(format), " data has its own files of held-out samples. Leave the flag out"));
  }
  ASSIGN_OR_RETURN(ImageCorpus corpus,
                   format == DataFormat::kIdx ? OpenIdx(config.path) : OpenCifar10(config.path));
  return std::make_shared<const ImageCorpus>(std::move(corpus));
}

int64_t NumBytesOfCorpus(const TokenCorpus& corpus) {
  int64_t num_bytes = 0;
  for (const TokenFile& file : corpus.files)
    num_bytes += file.file->num_bytes() - file.header_bytes;
  return num_bytes;
}

// Makes a data set. It visits the spec of an architecture: operator() has one overload for each.
class DatasetMaker {
 public:
  DatasetMaker(const DataSource& source, const params::ModelSpec& model, uint64_t seed,
               StopRequested stop_requested)
      : source_(source), model_(model), seed_(seed), stop_requested_(stop_requested) {}

  absl::StatusOr<std::unique_ptr<Dataset>> operator()(const params::GptSpec& spec) const {
    const WindowCut cut = {spec.context, spec.vocabulary, seed_};
    if (const auto* text = std::get_if<TokenCorpus>(&source_.content)) {
      TokenCorpus corpus = *text;
      if (spec.vocabulary > kBytesAsTokens) {
        corpus.notes.push_back(
            absl::StrCat("text uses only ", kBytesAsTokens, " of the model's ", spec.vocabulary,
                         " tokens, because each byte is a token; to use the model's tokenizer, "
                         "give files of tokens"));
      }
      return MakeWindowDataset(std::move(corpus), TokenWidth::kOneByte, cut, stop_requested_);
    }
    if (const auto* tokens = std::get_if<TokensSource>(&source_.content)) {
      TokensSource chosen = *tokens;
      ASSIGN_OR_RETURN(const TokenWidth width, ChooseTokenWidth(spec.vocabulary, &chosen));
      return MakeWindowDataset(std::move(chosen.corpus), width, cut, stop_requested_);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(source_.path, " holds ", DataFormatName(source_.format), " images, but ",
                     params::ModelInWords(model_.name),
                     " is a gpt and needs text or tokens; mlp and cnn models take images"));
  }
  absl::StatusOr<std::unique_ptr<Dataset>> operator()(const params::MlpSpec& spec) const {
    return MakeImages({model_.name, true, {1, 1, spec.widths.front()}, spec.widths.back()});
  }
  absl::StatusOr<std::unique_ptr<Dataset>> operator()(const params::CnnSpec& spec) const {
    const ImageShape shape = {spec.image_channels, spec.image_height, spec.image_width};
    return MakeImages({model_.name, false, shape, spec.num_classes});
  }
  absl::StatusOr<std::unique_ptr<Dataset>> operator()(const params::ClientModelSpec&) const {
    return absl::InvalidArgumentError(absl::StrCat(
        params::ModelInWords(model_.name),
        " is computed by a program of its own, so gpu_worker cannot train it; start that program"));
  }

 private:
  absl::StatusOr<std::unique_ptr<Dataset>> MakeImages(const ImageInput& input) const {
    const auto* images = std::get_if<std::shared_ptr<const ImageCorpus>>(&source_.content);
    if (images != nullptr) return MakeImageDataset(*images, input, stop_requested_);
    return absl::InvalidArgumentError(
        absl::StrCat(source_.path, " holds ", DataFormatName(source_.format), ", but ",
                     params::ModelInWords(input.model_name),
                     " needs images: a folder with IDX files (", IdxFileNames(), ") or CIFAR-10 (",
                     Cifar10FileNames(), "); gpt models take text and tokens"));
  }

  const DataSource& source_;
  const params::ModelSpec& model_;
  const uint64_t seed_;
  const StopRequested stop_requested_;
};

}  // namespace

int64_t NumBytesOf(const DataSource& source) {
  if (const auto* text = std::get_if<TokenCorpus>(&source.content)) return NumBytesOfCorpus(*text);
  if (const auto* tokens = std::get_if<TokensSource>(&source.content)) {
    return NumBytesOfCorpus(tokens->corpus);
  }
  int64_t num_bytes = 0;
  for (const auto& file : std::get<std::shared_ptr<const ImageCorpus>>(source.content)->files) {
    num_bytes += file->num_bytes();
  }
  return num_bytes;
}

absl::StatusOr<DataSource> OpenData(const DataConfig& config) {
  if (config.path.empty()) {
    return absl::InvalidArgumentError("--data is empty; give a file or a folder");
  }
  RETURN_IF_ERROR(CheckPath("--data", config.path));
  if (!config.heldout_path.empty()) {
    RETURN_IF_ERROR(CheckPath("--heldout_data", config.heldout_path));
  }
  DataSource source;
  source.path = config.path;
  ASSIGN_OR_RETURN(source.format, ChooseFormat(config));
  if (IsImageFormat(source.format)) {
    ASSIGN_OR_RETURN(source.content, OpenImages(config, source.format));
  } else if (source.format == DataFormat::kTokens) {
    ASSIGN_OR_RETURN(source.content, OpenTokens(config));
  } else {
    ASSIGN_OR_RETURN(source.content, OpenText(config));
  }
  return source;
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeDataset(const DataSource& source,
                                                     const params::ModelSpec& model, uint64_t seed,
                                                     StopRequested stop_requested) {
  RETURN_IF_ERROR(params::ValidateModelSpec(model));
  return std::visit(DatasetMaker(source, model, seed, stop_requested), model.architecture);
}

}  // namespace lodestar::data
