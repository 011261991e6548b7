// SPDX-License-Identifier: Apache-2.0

// Writes the files of an exported model.
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

namespace lodestar::psctl {

enum class ModelFormat {
  kSafetensors,  // one file
  kHuggingFace,  // a folder that from_pretrained() of Hugging Face's transformers reads
};

// Parses the name of a format. Errors: InvalidArgument naming the formats (`text` is not one of
// them).
absl::StatusOr<ModelFormat> ParseModelFormat(const std::string& text);

enum class Replace {
  kModels,  // replaces only a model that psctl wrote; otherwise the path must be new or empty
  kAny,     // replaces any regular file, and files in any folder
};

struct ModelTarget {
  ModelFormat format = ModelFormat::kSafetensors;
  std::string path;  // a file, or a folder

  std::string WeightsPath() const;
};

// Checks the target before the server is asked for a model. Errors: FailedPrecondition, which says
// what is there, why it may not be replaced, and what to do; those of CheckOutput().
absl::Status CheckModelOutput(const ModelTarget& target, Replace replace);

// Takes the bytes of a model's safetensors file, and writes all files of the target. Only Commit()
// replaces existing files. Without Commit() nothing remains. Never writes more bytes than the
// header announces. Not thread-safe.
class ModelWriter {
 public:
  // Makes the folder if the format needs one. Append() and Commit() return Cancelled once `stop`
  // was requested. Errors: those of files.
  static absl::StatusOr<std::unique_ptr<ModelWriter>> Create(const ModelTarget& target,
                                                             std::stop_token stop = {});
  ~ModelWriter();

  // Writes the next bytes of the safetensors file. Errors:
  // - InvalidArgument: the header is invalid; its sizes differ from those of the model; or more
  //   bytes have come than the header announces.
  // - ResourceExhausted: the disk has less room than the file needs.
  // - Those of files.
  absl::Status Append(absl::string_view bytes);
  // Puts the files into place:
  // - Removes the files of an earlier export that this one does not write, if their bytes are
  //   unchanged.
  // - Changes old names and shapes of tensors to those of this release. A server sends old ones if
  //   it continues from a journal of an earlier release.
  //
  // Errors: those of files; InvalidArgument (the format cannot hold the model, or the bytes are not
  // a safetensors file).
  absl::Status Commit();

  int64_t num_bytes() const { return num_bytes_; }
  // Returns the size of the whole file. 0 means that the header has not come yet.
  int64_t announced_bytes() const { return announced_bytes_; }

 private:
  ModelWriter(ModelTarget target, std::stop_token stop)
      : target_(std::move(target)), stop_(std::move(stop)) {}
  absl::Status CheckNotStopped() const;
  absl::Status ReadAnnouncement(absl::string_view bytes);

  const ModelTarget target_;
  const std::stop_token stop_;
  bool has_made_folder_ = false;
  std::optional<output::ReplacementFile> file_;  // set once Create() has returned
  std::string header_;                           // the part of the header that has come
  int64_t announced_bytes_ = 0;
  int64_t num_bytes_ = 0;
};

// Passes the model `weights`, which is on disk, to writer.Append() as a safetensors file. Errors:
// InvalidArgument (`weights` do not say which model they are of, or have other tensors than that
// model); those of reading and writing.
absl::Status AppendModel(const checkpoints::TrainedWeights& weights, ModelWriter& writer);

}  // namespace lodestar::psctl
