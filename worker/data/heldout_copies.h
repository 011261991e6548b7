// Finds files for training that are held out, too: copies of, or links to, a held-out file.
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
  // The bytes of the held-out `file` from `begin` on count; a header in front of them does not.
  // `file` must outlive this. Errors: those of DataFile::Read().
  absl::Status Add(const DataFile& file, int64_t begin);

  // Returns a held-out file whose bytes are those of `file` from `begin` on, or null. Reads few
  // files but those of the same size. Errors: those of DataFile::Read().
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
