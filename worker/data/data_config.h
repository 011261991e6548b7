// The data that a worker reads.
#pragma once

#include <string>

namespace lodestar::data {

struct DataConfig {
  std::string path;  // A file or a folder.
  // A file or folder of held-out data. Empty means that it is part of `path`.
  std::string heldout_path = {};
  std::string format = "auto";  // One of auto, text, tokens, idx, cifar10.
  // 2 or 4. 0 means what the header says. Without a header, 0 means what the vocabulary needs.
  int token_bytes = 0;
};

}  // namespace lodestar::data
