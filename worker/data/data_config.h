// Which data a worker has been given.
#pragma once

#include <string>

namespace lodestar::data {

struct DataConfig {
  std::string path;               // a file or a folder
  std::string heldout_path = {};  // the same, of held-out data; empty: it is part of `path`
  std::string format = "auto";    // auto, text, tokens, idx, cifar10
  int token_bytes = 0;            // 2 or 4; 0 means by header, else what the vocabulary needs
};

}  // namespace lodestar::data
