// FolderCopy: what some folders of a simulated disk hold at a moment, to be put back later, as when
// a disk is restored from a snapshot.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/testing/simulated_file_system.h"

namespace lodestar::simulation {

class FolderCopy {
 public:
  FolderCopy() = default;
  // The files in `folders`, which have no folders in them. The disk must be readable.
  FolderCopy(SimulatedFileSystem& disk, std::vector<std::string> folders);

  // The folders hold these files and no others, and the disk has that. No process may use them.
  void PutBack(SimulatedFileSystem& disk) const;
  bool is_empty() const { return files_.empty(); }

 private:
  std::vector<std::string> folders_;
  std::map<std::string, std::string> files_;  // by path
};

}  // namespace lodestar::simulation
