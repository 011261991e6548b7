// SPDX-License-Identifier: Apache-2.0

// The weights of a trained model on disk, as whole tensors. Reads a safetensors file, as `export`
// writes it; a checkpoint directory, whatever number of servers wrote it; or a folder that Hugging
// Face's save_pretrained() has written for a GPT-2. Files of earlier releases, which did not yet
// use the names of Hugging Face, are read under today's names and shapes.
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

namespace lodestar::checkpoints {

// Maps the files and gives their tensors. Thread-safe once opened.
class TrainedWeights {
 public:
  // Opens a file or a directory. Errors: those of SafetensorsReader::Open(). For a directory also:
  // NotFound (it is not a checkpoint; names the checkpoints in it); DataLoss (it cannot be
  // verified); FailedPrecondition (its job had no weights, --optimizer=reduce).
  static absl::StatusOr<std::unique_ptr<TrainedWeights>> Open(storage::FileSystem& file_system,
                                                              const std::string& path);

  const std::string& path() const { return path_; }
  // Returns the JSON text of the model (common/params/model_spec_json.h), from the files or from a
  // config.json beside the weights. Empty means that neither has it.
  const std::string& model() const { return model_; }
  // Returns the model. Errors: InvalidArgument naming the file, if it has no model or an invalid
  // one.
  absl::StatusOr<params::ModelSpec> Spec() const;

  // Checks that the model in the files has as many heads as `spec`. The shapes of tensors do not
  // show the number of heads. Errors: InvalidArgument with both numbers.
  absl::Status CheckHeads(const params::ModelSpec& spec) const;
  // Checks that the tensors are exactly those of `layout`. Their names may begin with
  // "transformer.". In a GPT-2 of Hugging Face, masks and a head that equals the token table are
  // ignored. Errors: InvalidArgument naming the first tensor that is missing, not wanted, or of
  // another shape or type.
  absl::Status CheckTensors(const params::Layout& layout) const;
  // Reads a range of the parameter space of `layout` into `weights`. Requires: CheckTensors() is
  // OK.
  absl::Status Read(const params::Layout& layout, params::ElementRange range,
                    absl::Span<float> weights) const;

 private:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    absl::Span<const float> values;  // values of F32 tensors, in a mapped file or in joined_
  };

  // The result of Find(): a tensor of the files, and how to read the wanted tensor from it.
  struct Match {
    std::string name;
    const Tensor* tensor = nullptr;  // null means that the files do not have the tensor
    bool is_transposed = false;
  };

  explicit TrainedWeights(std::string path) : path_(std::move(path)) {}
  absl::Status OpenFile(storage::FileSystem& file_system, const std::string& path);
  absl::Status OpenCheckpoint(storage::FileSystem& file_system);
  absl::Status OpenHuggingFace(storage::FileSystem& file_system);
  // Reads the model from a config.json in `folder`, if there is one. If `is_of_weights` is false,
  // it is not certain that the file belongs to the weights. The file is then used only if it
  // describes a GPT-2.
  absl::Status ReadConfig(storage::FileSystem& file_system, const std::string& folder,
                          bool is_of_weights);
  Match Find(const params::TensorSpec& wanted) const;
  // Checks that `tensor`, which is not in `layout`, may be ignored.
  absl::Status CheckUnused(const params::Layout& layout, const std::string& name,
                           const Tensor& tensor) const;
  absl::Status AddPart(const params::Layout& layout, params::ElementRange range,
                       const storage::SafetensorsReader& file);

  const std::string path_;
  std::string model_;
  std::vector<std::unique_ptr<storage::SafetensorsReader>> files_;
  std::map<std::string, Tensor> tensors_;
  // Joined values of tensors that a shard boundary cuts.
  std::map<std::string, std::vector<float>> joined_;
};

}  // namespace lodestar::checkpoints
