// SPDX-License-Identifier: Apache-2.0

// HeldoutCopies finds training files that are copies of held-out files, or links to them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/data_file.h"

namespace lodestar::data {

class HeldoutCopies {
 public:
  // Adds a held-out file. Only its bytes from `begin` on are compared, without the header. `file`
  // must outlive the object. Errors: those of DataFile::Read().
  absl::Status Add(const DataFile& file, int64_t begin);

  // Returns a held-out file whose bytes equal those of `file` from `begin` on. Null means that
  // there is none. Reads only files that have as many bytes as a held-out file. Errors: those of
  // DataFile::Read().
  absl::StatusOr<const DataFile*> Find(const DataFile& file, int64_t begin) const;

 private:
  struct Part {
    const DataFile* file = nullptr;
    int64_t begin = 0;
    int64_t num_bytes() const { return file->num_bytes() - begin; }
  };
  static absl::StatusOr<std::string> StartOf(const Part& part);
  static absl::StatusOr<bool> HasSameBytes(const Part& a, const Part& b);

  std::set<int64_t> sizes_;
  std::multimap<std::string, Part> by_start_;
};

}  // namespace lodestar::data
