// SPDX-License-Identifier: Apache-2.0

// FolderCopy keeps the files of some folders of a simulated disk, and can restore them later, like
// a snapshot of a disk.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/testing/simulated_file_system.h"

namespace lodestar::simulation {

class FolderCopy {
 public:
  FolderCopy() = default;
  // Copies the files in `folders`, which must have no folders of journals in them. The disk must be
  // readable.
  FolderCopy(SimulatedFileSystem& disk, std::vector<std::string> folders);

  // Replaces the files in the folders by these, and syncs them. No process may use the folders.
  void PutBack(SimulatedFileSystem& disk) const;
  bool is_empty() const { return files_.empty(); }

 private:
  std::vector<std::string> folders_;
  std::map<std::string, std::string> files_;  // content by path
};

}  // namespace lodestar::simulation
