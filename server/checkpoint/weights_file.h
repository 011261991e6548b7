// Plain safetensors files with whole tensors: what `export` writes and --init_from reads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/layout.h"
#include "common/safetensors.h"

namespace lodestar {

// Writes the weights of a verified checkpoint into one file, all or nothing; the model spec goes
// into its metadata (common/model_spec_json.h). Blocks for the disk.
absl::Status ExportWeights(const std::string& checkpoint_directory, const std::string& out_path);

class WeightsFile {
 public:
  // Errors: those of files; InvalidArgument naming the first tensor that is missing, too many, or
  // of another shape or type than the layout says.
  static absl::StatusOr<std::unique_ptr<WeightsFile>> Open(const std::string& path,
                                                           const Layout& layout);

  // The form that ParameterShard::LoadWeights() takes. Thread-safe.
  absl::Status Read(ElementRange range, absl::Span<float> weights) const;

 private:
  WeightsFile(std::unique_ptr<SafetensorsReader> file, Layout layout);

  const std::unique_ptr<SafetensorsReader> file_;
  const Layout layout_;
};

}  // namespace lodestar
