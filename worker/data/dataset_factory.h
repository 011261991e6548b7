// SPDX-License-Identifier: Apache-2.0

// Makes samples from paths in two steps. OpenData() checks what needs no model, and MakeDataset()
// checks the rest. No other code chooses the reader for a format.
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
  // The data as text, as tokens or as images.
  std::variant<TokenCorpus, TokensSource, std::shared_ptr<const ImageCorpus>> content;
};

// Returns the number of bytes that MakeDataset() reads.
int64_t NumBytesOf(const DataSource& source);

// Finds the data, opens every file, and checks what needs no model: access rights, format, headers,
// sizes. Errors: InvalidArgument, NotFound or PermissionDenied naming the file, the offset, what
// was expected, and the flag to change.
absl::StatusOr<DataSource> OpenData(const DataConfig& config);

// Makes the data set. Reads every byte, and calls `stop_requested` from time to time. Checks what
// needs the model:
// - labels;
// - tokens against the model's vocabulary;
// - the context;
// - image sizes against the model's input.
// `seed` shifts the windows of text in each epoch. Errors: those of OpenData(); Cancelled if a stop
// is requested.
absl::StatusOr<std::unique_ptr<Dataset>> MakeDataset(const DataSource& source,
                                                     const params::ModelSpec& model, uint64_t seed,
                                                     StopRequested stop_requested = NeverStopped);

}  // namespace lodestar::data
