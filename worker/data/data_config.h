// SPDX-License-Identifier: Apache-2.0

// The data that a worker reads.
#pragma once

#include <string>

namespace lodestar::data {

struct DataConfig {
  std::string path;  // A file or a folder.
  // A file or folder of held-out data. Empty means that a part of `path` is held out.
  std::string heldout_path = {};
  std::string format = "auto";  // One of auto, text, tokens, idx, cifar10.
  // Bytes per token: 2 or 4. 0 means the size in the file's header. Without a header, 0 means the
  // size that the vocabulary needs.
  int token_bytes = 0;
};

}  // namespace lodestar::data
