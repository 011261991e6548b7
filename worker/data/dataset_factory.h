// From paths to samples, in two steps: what can be known of the data alone, and what a model takes
// of it. The only place that chooses among the readers.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "common/params/model_spec.h"
#include "worker/data/data_config.h"
#include "worker/data/dataset.h"
#include "worker/data/format_detection.h"
#include "worker/data/image_dataset.h"
#include "worker/data/tokens_reader.h"
#include "worker/data/window_dataset.h"

namespace lodestar::data {

// Data that was found and opened.
struct DataSource {
  std::string path;
  DataFormat format = DataFormat::kText;
  // The first is text, the second tokens, the third images.
  std::variant<TokenCorpus, TokensSource, std::shared_ptr<const ImageCorpus>> content;
};

// Returns the bytes of all files, as MakeDataset() reads them.
int64_t NumBytesOf(const DataSource& source);

// Finds the data, opens every file and checks what needs no model: rights, format, headers, sizes.
// Errors: InvalidArgument, NotFound or PermissionDenied, naming file, offset, what was expected and
// the flag that decides.
absl::StatusOr<DataSource> OpenData(const DataConfig& config);

// Checks the rest before training: labels, tokens against the model's vocabulary, context, image
// size against the model's input. `seed` shifts windows of text per epoch. Reads every byte, and
// asks `stop_requested` now and then. Errors: as OpenData(); Cancelled if it was told to stop.
absl::StatusOr<std::unique_ptr<Dataset>> MakeDataset(const DataSource& source,
                                                     const ModelSpec& model, uint64_t seed,
                                                     StopRequested stop_requested = NeverStopped);

}  // namespace lodestar::data
