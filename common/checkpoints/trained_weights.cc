// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/trained_weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/checkpoints/hugging_face.h"
#include "common/job/job_spec.h"
#include "common/params/model_spec_json.h"
#include "common/params/tensor_slices.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::checkpoints {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", PeerText(absl::StrJoin(shape, ", ")), "]");
}

// Names of weights files that PyTorch has pickled.
constexpr const char* kPickledWeights[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

// Returns the names of the files in a folder, or an empty list if the folder cannot be listed.
std::vector<std::string> NamesIn(storage::FileSystem& file_system, const std::string& folder) {
  std::vector<std::string> names = file_system.List(folder).value_or(std::vector<std::string>());
  std::sort(names.begin(), names.end());
  return names;
}

// Returns true if TrainedWeights can open the folder: it is a checkpoint, or a folder of Hugging
// Face.
bool HasWeights(storage::FileSystem& file_system, const std::string& folder) {
  return file_system.Exists(absl::StrCat(folder, "/", kManifestName)) ||
         file_system.Exists(absl::StrCat(folder, "/", kHuggingFaceWeights)) ||
         file_system.Exists(absl::StrCat(folder, "/", kHuggingFaceIndex));
}

// Returns why the weights in the folder cannot be read, and what to do. Empty means that the folder
// has no weights.
std::string WhyNotRead(storage::FileSystem& file_system, const std::string& path) {
  for (const char* const name : kPickledWeights) {
    if (!file_system.Exists(absl::StrCat(path, "/", name))) continue;
    return absl::StrCat(
        path, " has only ", name, ", a pickle file of Python, and no ", kHuggingFaceWeights,
        ". Convert it in Python: transformers.AutoModelForCausalLM.from_pretrained('", path,
        "').save_pretrained('FOLDER', safe_serialization=True), and give that folder");
  }
  if (file_system.Exists(absl::StrCat(path, "/adapter_model.safetensors"))) {
    return absl::StrCat(
        path,
        " has only the adapter of a model (adapter_model.safetensors, as LoRA writes it), and no ",
        kHuggingFaceWeights,
        ". Merge it into the model in Python: peft.AutoPeftModelForCausalLM.from_pretrained('",
        path, "').merge_and_unload().save_pretrained('FOLDER'), and give that folder");
  }
  std::vector<std::string> files = NamesIn(file_system, path);
  files.erase(
      std::remove_if(files.begin(), files.end(),
                     [](const std::string& name) { return !absl::EndsWith(name, ".safetensors"); }),
      files.end());
  if (files.empty()) return "";
  const std::string first = absl::StrCat(path, "/", PeerText(files.front()));
  if (files.size() == 1) {
    return absl::StrCat(path, " has no ", kHuggingFaceWeights,
                        "; give the path of its file of weights: ", first);
  }
  return absl::StrCat(path, " has ", files.size(), " files of weights, such as ", first,
                      ", but no ", kHuggingFaceIndex,
                      ", which lists them; copy that file there as well");
}

// Returns the error for a folder without a manifest. Most likely it contains checkpoints, or the
// snapshots of a Hugging Face cache.
absl::Status NoCheckpoint(storage::FileSystem& file_system, const std::string& path) {
  if (std::string why = WhyNotRead(file_system, path); !why.empty()) {
    return absl::InvalidArgumentError(why);
  }
  std::vector<std::string> candidates;
  for (const std::string& parent : {path, absl::StrCat(path, "/snapshots")}) {
    for (const std::string& name : NamesIn(file_system, parent)) {
      std::string candidate = (std::filesystem::path(parent) / name).string();
      if (HasWeights(file_system, candidate)) candidates.push_back(std::move(candidate));
    }
  }
  return absl::NotFoundError(absl::StrCat(
      path, " is a folder without ", kManifestName, " (so it is no checkpoint) and without ",
      kHuggingFaceWeights, "; ",
      candidates.empty()
          ? "give a checkpoint, a safetensors file, or a folder in the form of Hugging Face"
          : absl::StrCat("give one of the models in it: ", absl::StrJoin(candidates, ", "))));
}

bool HasFloats(absl::string_view dtype) { return dtype == "F32"; }

// Returns advice for an error about weights of this dtype: how to convert them. Empty means that no
// way is known.
absl::string_view AdviceFor(absl::string_view dtype) {
  const bool is_convertible = dtype == "BF16" || dtype == "F16" || dtype == "F64";
  return is_convertible ? "; convert the weights to float32 in Python: "
                          "model.float().save_pretrained('FOLDER'), and give that folder"
                        : "";
}

// Returns true if the matrix is transposed, as in nanoGPT, which uses torch.nn.Linear. Square
// matrices cannot be recognised.
bool IsTransposed(const std::vector<int64_t>& shape, const std::vector<int64_t>& wanted) {
  return shape.size() == 2 && shape != wanted &&
         std::equal(shape.begin(), shape.end(), wanted.rbegin(), wanted.rend());
}

constexpr absl::string_view kTokenTable = "wte.weight";
constexpr absl::string_view kHead = "lm_head.weight";

// Returns true for "h.3.attn.bias" and "h.3.attn.masked_bias": older files have the causal mask as
// a tensor.
bool IsMask(absl::string_view name) {
  absl::ConsumePrefix(&name, kHuggingFacePrefix);
  if (!absl::ConsumePrefix(&name, "h.")) return false;
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0) return false;
  name.remove_prefix(digits);
  return name == ".attn.bias" || name == ".attn.masked_bias";
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainedWeights>> TrainedWeights::Open(
    storage::FileSystem& file_system, const std::string& path) {
  std::unique_ptr<TrainedWeights> weights(new TrainedWeights(path));
  if (!file_system.IsDirectory(path)) {
    RETURN_IF_ERROR(weights->OpenFile(file_system, path));
    if (!weights->model_.empty()) return weights;
    const std::string folder = std::filesystem::path(path).parent_path();
    RETURN_IF_ERROR(
        weights->ReadConfig(file_system, folder.empty() ? "." : folder, /*is_of_weights=*/false));
    return weights;
  }
  const bool is_checkpoint = file_system.Exists(absl::StrCat(path, "/", kManifestName));
  const bool is_hugging_face = file_system.Exists(absl::StrCat(path, "/", kHuggingFaceWeights)) ||
                               file_system.Exists(absl::StrCat(path, "/", kHuggingFaceIndex));
  RETURN_IF_ERROR(!is_checkpoint && is_hugging_face ? weights->OpenHuggingFace(file_system)
                                                    : weights->OpenCheckpoint(file_system));
  return weights;
}

absl::Status TrainedWeights::OpenFile(storage::FileSystem& file_system, const std::string& path) {
  ASSIGN_OR_RETURN(files_.emplace_back(), storage::SafetensorsReader::Open(file_system, path));
  const storage::SafetensorsReader& file = *files_.back();
  const auto model = file.metadata().find(params::kModelMetadataKey);
  if (model != file.metadata().end()) model_ = model->second;
  for (const storage::SafetensorsTensor& tensor : file.tensors()) {
    const auto [added, is_new] = tensors_.try_emplace(tensor.name);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(path, " has tensor ", PeerText(tensor.name),
                                                     ", which another file of ", path_,
                                                     " has as well; remove one of the two files"));
    }
    added->second.dtype = tensor.dtype;
    added->second.shape = tensor.shape;
    if (const auto values = file.Floats(tensor.name); values.ok()) added->second.values = *values;
  }
  return absl::OkStatus();
}

absl::Status TrainedWeights::ReadConfig(storage::FileSystem& file_system, const std::string& folder,
                                        bool is_of_weights) {
  const std::string path = absl::StrCat(folder, "/", kHuggingFaceConfig);
  if (!file_system.Exists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text,
                   file_system.ReadWholeFile(path, kMaxHuggingFaceJsonBytes));
  if (!is_of_weights && !IsConfigOfGpt2(text)) return absl::OkStatus();
  const absl::StatusOr<params::ModelSpec> spec = ModelSpecFromHuggingFace(text);
  if (!spec.ok()) {
    return absl::Status(spec.status().code(), absl::StrCat(path, ": ", spec.status().message()));
  }
  model_ = params::ModelSpecToJson(*spec);
  return absl::OkStatus();
}

absl::Status TrainedWeights::OpenHuggingFace(storage::FileSystem& file_system) {
  const std::string index = absl::StrCat(path_, "/", kHuggingFaceIndex);
  std::vector<std::string> names = {kHuggingFaceWeights};
  if (!file_system.Exists(absl::StrCat(path_, "/", kHuggingFaceWeights))) {
    ASSIGN_OR_RETURN(const std::string text,
                     file_system.ReadWholeFile(index, kMaxHuggingFaceJsonBytes));
    absl::StatusOr<std::vector<std::string>> indexed = FilesOfHuggingFaceIndex(text);
    if (!indexed.ok()) {
      return absl::Status(indexed.status().code(),
                          absl::StrCat(index, ": ", indexed.status().message()));
    }
    names = *std::move(indexed);
  }
  for (const std::string& name : names) {
    RETURN_IF_ERROR(OpenFile(file_system, absl::StrCat(path_, "/", name)));
  }
  // Our own files describe the whole model. A config.json beside them may have been changed, so it
  // is read only if our files have no model.
  return model_.empty() ? ReadConfig(file_system, path_, /*is_of_weights=*/true) : absl::OkStatus();
}

absl::Status TrainedWeights::OpenCheckpoint(storage::FileSystem& file_system) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(file_system, path_);
  if (absl::IsNotFound(manifest.status())) return NoCheckpoint(file_system, path_);
  RETURN_IF_ERROR(manifest.status());
  if (manifest->settings.value("optimizer", "") == NameOf(job::OptimizerKind::kReduce)) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": ", job::kReducesOnly));
  }
  model_ = manifest->model;
  for (const params::TensorSpec& tensor : manifest->layout.tensors()) {
    tensors_[tensor.name] = {"F32", tensor.shape, {}};
  }
  for (const ShardManifest& shard : manifest->shards) {
    RETURN_IF_ERROR(VerifyCheckpointFile(file_system, path_, shard.weights));
    ASSIGN_OR_RETURN(files_.emplace_back(),
                     storage::SafetensorsReader::Open(
                         file_system, absl::StrCat(path_, "/", shard.weights.name)));
    RETURN_IF_ERROR(AddPart(manifest->layout, shard.range, *files_.back()));
  }
  return absl::OkStatus();
}

absl::Status TrainedWeights::AddPart(const params::Layout& layout, params::ElementRange range,
                                     const storage::SafetensorsReader& file) {
  for (const params::TensorSlice& slice : params::SlicesOf(layout, range, /*state_name=*/"")) {
    ASSIGN_OR_RETURN(const absl::Span<const float> values, file.Floats(slice.name));
    if (static_cast<int64_t>(values.size()) != slice.range.size()) {
      return absl::DataLossError(absl::StrCat(file.path(), ": tensor ", PeerText(slice.name),
                                              " has ", values.size(),
                                              " elements, but the checkpoint's layout says ",
                                              slice.range.size(), ". Give another checkpoint"));
    }
    const params::TensorSpec& tensor = *layout.Find(slice.tensor);
    if (slice.range.size() == tensor.num_elements()) {
      tensors_[tensor.name].values = values;
      continue;
    }
    std::vector<float>& joined = joined_[tensor.name];
    joined.resize(tensor.num_elements());
    std::copy(values.begin(), values.end(), joined.begin() + (slice.range.begin - tensor.offset));
    tensors_[tensor.name].values = joined;
  }
  return absl::OkStatus();
}

absl::StatusOr<params::ModelSpec> TrainedWeights::Spec() const {
  if (model_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, " does not say which model it holds (no metadata '", params::kModelMetadataKey,
        "'); give a checkpoint, or a file that psctl export wrote"));
  }
  return params::ModelSpecFromJson(model_);
}

absl::Status TrainedWeights::CheckTensors(const params::Layout& layout) const {
  std::set<std::string> used;
  for (const params::TensorSpec& wanted : layout.tensors()) {
    const Match match = Find(wanted);
    if (match.tensor == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " has no tensor ", wanted.name, " of shape ", ShapeText(wanted.shape),
                       ", which the model needs; give the weights of such a model"));
    }
    const Tensor& tensor = *match.tensor;
    std::vector<int64_t> shape = wanted.shape;
    if (match.is_transposed) std::reverse(shape.begin(), shape.end());
    if (!HasFloats(tensor.dtype) || tensor.shape != shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": tensor ", match.name, " is ", tensor.dtype, " ", ShapeText(tensor.shape),
          ", and the model needs F32 ", ShapeText(shape), AdviceFor(tensor.dtype),
          IsTransposed(tensor.shape, shape)
              ? ". It is transposed, as in nanoGPT: transpose the weights of c_attn, c_proj and "
                "c_fc in Python (weight.t().contiguous()), and save them again"
              : ""));
    }
    used.insert(match.name);
  }
  for (const auto& [name, tensor] : tensors_) {
    if (!used.contains(name)) RETURN_IF_ERROR(CheckUnused(layout, name, tensor));
  }
  return absl::OkStatus();
}

absl::Status TrainedWeights::CheckUnused(const params::Layout& layout, const std::string& name,
                                         const Tensor& tensor) const {
  const params::TensorSpec* const table = layout.Find(std::string(kTokenTable));
  const bool is_gpt = table != nullptr;
  if (is_gpt && IsMask(name)) return absl::OkStatus();
  if (!is_gpt || name != kHead) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, " has tensor ", PeerText(name),
                     ", which the model does not have; give the weights of the job's model"));
  }
  const Tensor& tied = *Find(*table).tensor;
  const bool is_equal = tensor.shape == tied.shape && tensor.values.size() == tied.values.size() &&
                        std::memcmp(tensor.values.data(), tied.values.data(),
                                    tied.values.size() * sizeof(float)) == 0;
  if (is_equal) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path_, " has a separate tensor ", kHead, ", ", tensor.dtype, " ",
                   ShapeText(tensor.shape), ", that differs from ", kTokenTable,
                   "; Lodestar's gpt uses the same values for both, so this model cannot be read"));
}

TrainedWeights::Match TrainedWeights::Find(const params::TensorSpec& wanted) const {
  const params::EarlierTensor earlier = params::EarlierGptTensor(wanted.name);
  Match match;
  // safetensors.torch.save_model() writes only one of two tensors that share memory: the head, and
  // not the token table.
  const std::string tied(wanted.name == kTokenTable ? kHead : "");
  for (const std::string& name :
       {wanted.name, absl::StrCat(kHuggingFacePrefix, wanted.name), earlier.name, tied}) {
    const auto seen = tensors_.find(name);
    if (seen == tensors_.end()) continue;
    return {name, &seen->second, name == earlier.name && earlier.is_transposed};
  }
  return match;
}

absl::Status TrainedWeights::CheckHeads(const params::ModelSpec& spec) const {
  const auto* const wanted = std::get_if<params::GptSpec>(&spec.architecture);
  if (wanted == nullptr || model_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const params::ModelSpec there, params::ModelSpecFromJson(model_));
  const auto* const gpt = std::get_if<params::GptSpec>(&there.architecture);
  if (gpt == nullptr || gpt->num_heads == wanted->num_heads) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path_, " has the weights of a model with ", gpt->num_heads,
                   " heads, but model '", spec.name, "' has ", wanted->num_heads,
                   " heads. Give weights of a model with ", wanted->num_heads, " heads"));
}

absl::Status TrainedWeights::Read(const params::Layout& layout, params::ElementRange range,
                                  absl::Span<float> weights) const {
  for (const params::TensorSlice& slice : params::SlicesOf(layout, range, /*state_name=*/"")) {
    const params::TensorSpec& wanted = *layout.Find(slice.tensor);
    const Match match = Find(wanted);
    if (match.tensor == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(path_, " has no tensor ", slice.tensor,
                       ", which the model needs. Give weights of that model"));
    }
    const absl::Span<const float> values = match.tensor->values;
    const int64_t begin = slice.range.begin - wanted.offset;
    float* const out = weights.data() + (slice.range.begin - range.begin);
    if (!match.is_transposed) {
      std::memcpy(out, values.data() + begin, slice.range.size() * sizeof(float));
      continue;
    }
    const params::TransposedMatrix matrix = {
        {0, wanted.num_elements()}, wanted.shape[0], wanted.shape[1]};
    for (int64_t i = 0; i < slice.range.size(); ++i) out[i] = values[matrix.WrittenAt(begin + i)];
  }
  return absl::OkStatus();
}

}  // namespace lodestar::checkpoints
