// The weights of a trained model on disk, as whole tensors: of one safetensors file, as `export`
// writes it, of a checkpoint directory, whatever number of servers wrote it, or of a folder as
// Hugging Face's save_pretrained() writes it for a GPT-2. What releases before the names of Hugging
// Face have written is read under the names and shapes of today.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/storage/file_system.h"
#include "common/storage/safetensors.h"

namespace lodestar {

// Maps the files. Thread-safe once opened.
class TrainedWeights {
 public:
  // Errors: those of SafetensorsReader::Open(); of a directory also NotFound if it is no
  // checkpoint, naming those it holds, DataLoss if it does not verify, and FailedPrecondition if
  // its job had no weights (--optimizer=reduce).
  static absl::StatusOr<std::unique_ptr<TrainedWeights>> Open(FileSystem& file_system,
                                                              const std::string& path);

  const std::string& path() const { return path_; }
  // JSON text of the model (common/params/model_spec_json.h), or what a config.json beside the
  // weights says; empty if the files do not say.
  const std::string& model() const { return model_; }
  // The same, read. Errors: InvalidArgument naming the file if it does not say, or says no model.
  absl::StatusOr<ModelSpec> Spec() const;

  // Whether the model that the files name has the heads of `spec`, which no shape tells. Error:
  // InvalidArgument with both numbers.
  absl::Status CheckHeads(const ModelSpec& spec) const;
  // Whether the tensors are exactly those of `layout`, perhaps behind "transformer.". Of a GPT-2 of
  // Hugging Face, masks are passed over, and so is a head that is equal to the token table. Errors:
  // InvalidArgument naming the first that is missing, too many, or of another shape or type.
  absl::Status CheckTensors(const Layout& layout) const;
  // Elements of the parameter space that `layout` lays out. Requires: CheckTensors() is OK.
  absl::Status Read(const Layout& layout, ElementRange range, absl::Span<float> weights) const;

 private:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    absl::Span<const float> values;  // of F32 tensors: in a mapped file, or in joined_
  };

  // What `wanted` is read from.
  struct Match {
    std::string name;
    const Tensor* tensor = nullptr;  // null: there is none
    bool is_transposed = false;
  };

  explicit TrainedWeights(std::string path) : path_(std::move(path)) {}
  absl::Status OpenFile(FileSystem& file_system, const std::string& path);
  absl::Status OpenCheckpoint(FileSystem& file_system);
  absl::Status OpenHuggingFace(FileSystem& file_system);
  // The model that a config.json in `folder` names, if there is one. Unless `is_of_weights` it may
  // be of something else, and counts only if it is of a GPT-2.
  absl::Status ReadConfig(FileSystem& file_system, const std::string& folder, bool is_of_weights);
  Match Find(const TensorSpec& wanted) const;
  // Whether a model with the tensors of `layout` needs nothing of it.
  absl::Status CheckUnused(const Layout& layout, const std::string& name,
                           const Tensor& tensor) const;
  absl::Status AddPart(const Layout& layout, ElementRange range, const SafetensorsReader& file);

  const std::string path_;
  std::string model_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::vector<float>> joined_;  // tensors that a shard boundary cuts
};

}  // namespace lodestar
