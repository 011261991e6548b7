// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/model_output.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/checkpoints/hugging_face.h"
#include "common/params/model_spec_json.h"
#include "common/runtime/file_io.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "common/storage/safetensors.h"

namespace lodestar::psctl {
namespace {

constexpr size_t kMaxNameBytes = 256;  // maximum length of a model's name in messages

bool IsModelOfOurs(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<storage::SafetensorsReader>> file =
      storage::SafetensorsReader::Open(storage::FileSystem::Real(), path);
  return file.ok() && (*file)->metadata().count(params::kModelMetadataKey) > 0;
}

absl::Status NotOurs(const std::string& path, absl::string_view otherwise) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " exists and is not a model that psctl wrote; give another ", otherwise,
                   ", or --force to replace it"));
}

absl::Status CheckFolder(const ModelTarget& target, Replace replace) {
  std::error_code error;
  const bool exists = std::filesystem::exists(target.path, error);
  if (exists && !std::filesystem::is_directory(target.path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        target.path,
        " is not a folder, but --format=huggingface writes a folder; give another path"));
  }
  if (const absl::Status file = output::ResolveOutput(target.WeightsPath()).status(); !file.ok()) {
    return absl::Status(file.code(), absl::StrCat("--out=", target.path, ": ", file.message()));
  }
  if (!exists) return absl::OkStatus();
  const bool may_write = replace == Replace::kAny ||
                         std::filesystem::is_empty(target.path, error) ||
                         IsModelOfOurs(target.WeightsPath());
  return may_write ? output::CheckOutput("out", target.WeightsPath())
                   : NotOurs(target.path, "folder");
}

// Returns the layout that this release uses for the model. A model that only a client's program
// knows has the layout in its checkpoint.
absl::StatusOr<params::Layout> LayoutOf(const checkpoints::TrainedWeights& weights,
                                        const params::ModelSpec& spec) {
  if (!std::holds_alternative<params::ClientModelSpec>(spec.architecture))
    return params::BuildLayout(spec);
  ASSIGN_OR_RETURN(const checkpoints::Manifest manifest,
                   checkpoints::ReadManifest(storage::FileSystem::Real(), weights.path()));
  return manifest.layout;
}

using Sink = absl::FunctionRef<absl::Status(absl::string_view)>;

absl::Status WriteModel(const checkpoints::TrainedWeights& weights, Sink sink) {
  ASSIGN_OR_RETURN(const params::ModelSpec spec, weights.Spec());
  ASSIGN_OR_RETURN(const params::Layout layout, LayoutOf(weights, spec));
  RETURN_IF_ERROR(weights.CheckTensors(layout));
  std::vector<storage::SafetensorsEntry> entries;
  for (const params::TensorSpec& tensor : layout.tensors())
    entries.push_back({tensor.name, tensor.shape});
  const storage::SafetensorsMetadata metadata = {{"format", "pt"},
                                                 {params::kModelMetadataKey, weights.model()}};
  ASSIGN_OR_RETURN(const storage::SafetensorsHeader header,
                   storage::FormatSafetensorsHeader("the export", entries, metadata));
  RETURN_IF_ERROR(sink(header.bytes));
  constexpr int64_t kPiece = 1 << 20;
  std::vector<float> values;
  for (int64_t begin = 0; begin < layout.num_elements(); begin += kPiece) {
    const params::ElementRange range = {begin, std::min(begin + kPiece, layout.num_elements())};
    values.resize(range.size());
    RETURN_IF_ERROR(weights.Read(layout, range, absl::MakeSpan(values)));
    RETURN_IF_ERROR(
        sink({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])}));
  }
  return absl::OkStatus();
}

// Checks that the header has as many weights as its model needs. If only a client's program or a
// later release knows the model, the check passes.
absl::Status CheckSizes(const storage::SafetensorsContents& contents) {
  const auto model = contents.metadata.find(params::kModelMetadataKey);
  if (model == contents.metadata.end()) return absl::OkStatus();
  const absl::StatusOr<params::ModelSpec> spec = params::ModelSpecFromJson(model->second);
  if (!spec.ok() || std::holds_alternative<params::ClientModelSpec>(spec->architecture)) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const params::Layout layout, params::BuildLayout(*spec));
  int64_t num_elements = 0;
  for (const storage::SafetensorsTensor& tensor : contents.tensors)
    num_elements += tensor.num_elements;
  if (num_elements == layout.num_elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the header of the export announces ", num_elements, " weights, but its model '",
                   PeerText(spec->name, kMaxNameBytes), "' needs ", layout.num_elements()));
}

// Checks that the disk of `path` has room for `num_bytes`.
absl::Status CheckRoom(const std::string& path, int64_t num_bytes) {
  RETURN_IF_ERROR(CheckFileSize(absl::StrCat("the weights in ", path), num_bytes));
  const std::optional<int64_t> free_bytes =
      storage::FileSystem::Real().FreeBytes(DirectoryOf(path));
  if (!free_bytes.has_value() || num_bytes <= *free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path, " needs ", num_bytes, " bytes, but only ", *free_bytes,
                   " are free on its disk; make room, or give a path on another disk"));
}

// Returns true if the model file at `path` has tensors under names of an earlier release.
absl::StatusOr<bool> HasEarlierNames(const std::string& path, const params::ModelSpec& spec) {
  if (!std::holds_alternative<params::GptSpec>(spec.architecture)) return false;
  ASSIGN_OR_RETURN(const params::Layout layout, params::BuildLayout(spec));
  ASSIGN_OR_RETURN(const std::unique_ptr<storage::SafetensorsReader> file,
                   storage::SafetensorsReader::Open(storage::FileSystem::Real(), path));
  return std::any_of(
      layout.tensors().begin(), layout.tensors().end(),
      [&](const params::TensorSpec& tensor) { return file->Find(tensor.name) == nullptr; });
}

// Returns the paths of files beside the model that an earlier export wrote and the new export does
// not write. An example is a tokenizer of bytes. Files whose contents were changed since are left
// out.
std::vector<std::string> FilesOfEarlierExport(const ModelTarget& target,
                                              const std::vector<checkpoints::NamedText>& files) {
  storage::FileSystem& disk = storage::FileSystem::Real();
  const auto weights = checkpoints::TrainedWeights::Open(disk, target.WeightsPath());
  if (!weights.ok()) return {};
  const absl::StatusOr<params::ModelSpec> spec = (*weights)->Spec();
  if (!spec.ok()) return {};
  const absl::StatusOr<std::vector<checkpoints::NamedText>> earlier =
      checkpoints::HuggingFaceFiles(*spec);
  if (!earlier.ok()) return {};
  std::vector<std::string> paths;
  for (const checkpoints::NamedText& file : *earlier) {
    if (std::any_of(files.begin(), files.end(), [&file](const checkpoints::NamedText& other) {
          return other.name == file.name;
        })) {
      continue;
    }
    const std::string path = absl::StrCat(target.path, "/", file.name);
    const auto text = disk.ReadWholeFile(path, checkpoints::kMaxHuggingFaceJsonBytes);
    if (text.ok() && *text == file.text) paths.push_back(path);
  }
  return paths;
}

}  // namespace

absl::StatusOr<ModelFormat> ParseModelFormat(const std::string& text) {
  if (text == "safetensors") return ModelFormat::kSafetensors;
  if (text == "huggingface") return ModelFormat::kHuggingFace;
  return absl::InvalidArgumentError(
      absl::StrCat("--format='", text, "' is unknown; allowed: safetensors, huggingface"));
}

std::string ModelTarget::WeightsPath() const {
  return format == ModelFormat::kHuggingFace
             ? absl::StrCat(path, "/", checkpoints::kHuggingFaceWeights)
             : path;
}

absl::Status CheckModelOutput(const ModelTarget& target, Replace replace) {
  if (target.format == ModelFormat::kHuggingFace) return CheckFolder(target, replace);
  RETURN_IF_ERROR(output::CheckOutput("out", target.path));
  ASSIGN_OR_RETURN(const std::string file, output::ResolveOutput(target.path));
  std::error_code no_file;
  const bool has_content = std::filesystem::file_size(file, no_file) > 0 && !no_file;
  if (!has_content || replace == Replace::kAny || IsModelOfOurs(file)) return absl::OkStatus();
  return NotOurs(absl::StrCat("--out=", target.path), "file");
}

absl::StatusOr<std::unique_ptr<ModelWriter>> ModelWriter::Create(const ModelTarget& target,
                                                                 std::stop_token stop) {
  std::unique_ptr<ModelWriter> writer(new ModelWriter(target, std::move(stop)));
  if (target.format == ModelFormat::kHuggingFace) {
    writer->has_made_folder_ = !storage::FileSystem::Real().Exists(target.path);
    RETURN_IF_ERROR(storage::FileSystem::Real().CreateDirectories(target.path));
  }
  ASSIGN_OR_RETURN(output::ReplacementFile file,
                   output::ReplacementFile::Create(target.WeightsPath()));
  writer->file_.emplace(std::move(file));
  return writer;
}

ModelWriter::~ModelWriter() {
  file_.reset();
  // rmdir() fails if the folder is not empty, so it removes no file.
  if (has_made_folder_) rmdir(target_.path.c_str());
}

absl::Status ModelWriter::CheckNotStopped() const {
  if (!stop_.stop_requested()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped on request; ", target_.path, " is unchanged"));
}

absl::Status ModelWriter::ReadAnnouncement(absl::string_view bytes) {
  absl::StrAppend(&header_, bytes);
  const auto contents = storage::ReadSafetensorsHeader(header_);
  if (!contents.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the server's export is not a safetensors file: ", contents.status().message()));
  }
  if (!contents->has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckSizes(**contents));
  RETURN_IF_ERROR(CheckRoom(target_.WeightsPath(), (*contents)->file_bytes));
  announced_bytes_ = (*contents)->file_bytes;
  header_ = std::string();
  return absl::OkStatus();
}

absl::Status ModelWriter::Append(absl::string_view bytes) {
  RETURN_IF_ERROR(CheckNotStopped());
  num_bytes_ += static_cast<int64_t>(bytes.size());
  if (announced_bytes_ == 0) RETURN_IF_ERROR(ReadAnnouncement(bytes));
  if (announced_bytes_ != 0 && num_bytes_ > announced_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the server sent at least ", num_bytes_,
                     " bytes, but the header of the export announces ", announced_bytes_));
  }
  return file_->Append(bytes);
}

absl::Status ModelWriter::Commit() {
  RETURN_IF_ERROR(CheckNotStopped());
  ASSIGN_OR_RETURN(const std::string written, file_->Finish());
  ASSIGN_OR_RETURN(std::unique_ptr<checkpoints::TrainedWeights> weights,
                   checkpoints::TrainedWeights::Open(storage::FileSystem::Real(), written));
  const absl::StatusOr<params::ModelSpec> spec = weights->Spec();
  std::vector<checkpoints::NamedText> others;
  std::vector<std::string> stale;
  if (target_.format == ModelFormat::kHuggingFace) {
    RETURN_IF_ERROR(spec.status());
    ASSIGN_OR_RETURN(others, checkpoints::HuggingFaceFiles(*spec));
    stale = FilesOfEarlierExport(target_, others);
  }
  bool is_earlier = false;
  if (spec.ok()) {  // otherwise the model is of a later release
    ASSIGN_OR_RETURN(is_earlier, HasEarlierNames(written, *spec));
  }
  RETURN_IF_ERROR(CheckNotStopped());
  RETURN_IF_ERROR(file_->Commit());
  if (is_earlier) {
    ASSIGN_OR_RETURN(output::ReplacementFile renamed,
                     output::ReplacementFile::Create(target_.WeightsPath()));
    RETURN_IF_ERROR(WriteModel(
        *weights, [&renamed](absl::string_view bytes) { return renamed.Append(bytes); }));
    RETURN_IF_ERROR(renamed.Commit());
  }
  for (const std::string& path : stale)
    RETURN_IF_ERROR(storage::FileSystem::Real().RemoveAll(path));
  for (const checkpoints::NamedText& file : others) {
    RETURN_IF_ERROR(
        output::WriteFileAtomically(absl::StrCat(target_.path, "/", file.name), file.text));
  }
  return absl::OkStatus();
}

absl::Status AppendModel(const checkpoints::TrainedWeights& weights, ModelWriter& writer) {
  return WriteModel(weights, [&writer](absl::string_view bytes) { return writer.Append(bytes); });
}

}  // namespace lodestar::psctl
