// The files that psctl writes a model to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoints/trained_weights.h"
#include "common/output/output_file.h"

namespace lodestar {

enum class ModelFormat {
  kSafetensors,  // one file
  kHuggingFace,  // a folder that from_pretrained() of Hugging Face's transformers reads
};

// Errors: InvalidArgument naming the formats.
absl::StatusOr<ModelFormat> ParseModelFormat(const std::string& text);

enum class Replace {
  kModels,  // what is new or empty, or a model that psctl wrote
  kAny,     // any regular file, and files in any folder
};

struct ModelTarget {
  ModelFormat format = ModelFormat::kSafetensors;
  std::string path;  // a file, or a folder

  std::string WeightsPath() const;
};

// Checked before a model is asked for. Errors: FailedPrecondition if what is there may not be
// replaced, with what it is and what to do; those of CheckOutput().
absl::Status CheckModelOutput(const ModelTarget& target, Replace replace);

// Takes the bytes of a model's safetensors file, and writes all that belongs to the target. Nothing
// that is there is replaced before Commit(). Without Commit() nothing is left. No more is written
// than the header announces. Not thread-safe.
class ModelWriter {
 public:
  // Makes the folder. Append() and Commit() return Cancelled once `stop` was requested. Errors:
  // those of files.
  static absl::StatusOr<std::unique_ptr<ModelWriter>> Create(const ModelTarget& target,
                                                             std::stop_token stop = {});
  ~ModelWriter();

  // Errors: InvalidArgument if the header is invalid, if its sizes differ from the model's, or if
  // more bytes follow than it announces; ResourceExhausted if the disk has less room than it
  // announces; those of files.
  absl::Status Append(absl::string_view bytes);
  // Removes what an earlier export to the folder wrote, byte for byte, and this one does not.
  // What a server sends that goes on from a journal of an earlier release gets the names and shapes
  // of today. Errors: those of files; InvalidArgument for a model that the format cannot hold, or
  // bytes that are no safetensors file.
  absl::Status Commit();

  int64_t num_bytes() const { return num_bytes_; }
  // Size of the whole file. 0 means that its header has not come yet.
  int64_t announced_bytes() const { return announced_bytes_; }

 private:
  ModelWriter(ModelTarget target, std::stop_token stop)
      : target_(std::move(target)), stop_(std::move(stop)) {}
  absl::Status CheckNotStopped() const;
  absl::Status ReadAnnouncement(absl::string_view bytes);

  const ModelTarget target_;
  const std::stop_token stop_;
  bool has_made_folder_ = false;
  std::optional<ReplacementFile> file_;  // always there once Create() has returned
  std::string header_;                   // what has come of it
  int64_t announced_bytes_ = 0;
  int64_t num_bytes_ = 0;
};

// The bytes of the safetensors file of a model on disk. Errors: InvalidArgument if it does not say
// which model it is or has other tensors; those of writing.
absl::Status AppendModel(const TrainedWeights& weights, ModelWriter& writer);

}  // namespace lodestar
