// SPDX-License-Identifier: Apache-2.0

// ResidualStore stores the residual of error feedback of one worker, in one file in the worker's
// own folder. If the process is killed, the next process of the same name continues with this
// residual.
//
// A new file is written before a contribution is sent. It is first written under another name and
// synced. Then it replaces the file of the last round. It has two residuals, because it is not yet
// known which buckets the servers will count: one for buckets that are counted, one for the others.
// ResidualKeeper asks the servers which of the two is right for each bucket. So the process may
// end, or the machine may crash, at any time:
//   before the file is replaced   nothing of this round was sent. The file is from the last round,
//                                 and the servers know which of its buckets were counted.
//   after the file is replaced    the servers know which buckets of this round were counted.
//
// Per round the residual is written twice and the encoded bytes once: 9 bytes per parameter with
// int8, 10 with bf16 and fp16. While a file is replaced, the folder needs twice as much space.
//
//   8 bytes   "LSRESID1"
//   8         length of the record, little endian
//   ...       the record (residual_record.h)
//   4 n       residual if the contribution is not counted, f32
//   4 n       residual if it is counted
//   ...       the contribution, bucket by bucket
//   4         crc32c of all bytes before
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/storage/file_system.h"
#include "worker/trainer/residual_record.h"

namespace lodestar::trainer {

class ResidualStore {
 public:
  // Requires: the folder exists, and no other process writes to it. `file_system` must outlive the
  // store.
  ResidualStore(storage::FileSystem* file_system, std::string folder, std::string worker_name);

  struct Stored {
    ResidualRecord record;
    std::vector<float> before;
    std::vector<float> after;
    // Returns the encoded bytes of a bucket.
    absl::Span<const std::byte> Of(uint32_t bucket) const;

    storage::FileBytes file;
    std::vector<const uint8_t*> places;  // Where each bucket's bytes begin.
  };

  // Writes the file. `before` and `after` must have record.num_elements() elements each.
  // `contribution` must have the bytes of each bucket of the record. When Save() returns, the file
  // is on disk. After an error the earlier file may still exist. Errors: those of the file system.
  absl::Status Save(const ResidualRecord& record, absl::Span<const float> before,
                    absl::Span<const float> after,
                    absl::Span<const absl::Span<const std::byte>> contribution);
  // Reads the file. Errors: NotFound if there is none; DataLoss naming what is wrong with its
  // length, checksum or record; those of the file system.
  absl::StatusOr<Stored> Load();
  // Removes the file, if there is one. Errors: those of the file system.
  absl::Status Remove();

  const std::string& path() const { return path_; }
  const std::string& worker_name() const { return worker_name_; }

 private:
  storage::FileSystem* const file_system_;
  const std::string folder_;
  const std::string worker_name_;
  const std::string path_;
};

}  // namespace lodestar::trainer
