// ResidualStore keeps the residual of error feedback of one worker, in one file of a folder of its
// own. A process that is killed and begun again under the same name then goes on with it.
//
// The file is written before a contribution is sent. It is written as a whole, under another name,
// and is on the disk before it takes the place of the file before. It has the residual as it is if
// the contribution is not counted, the residual as it is if it is counted, the contribution as it
// travels, and a ResidualRecord. If the same bytes are sent again, the servers tell bucket by
// bucket which of the two residuals holds (ResidualKeeper). A process may therefore end at any
// moment:
//   before the file is in its place   nothing of this round was sent; the file is of the round
//                                     before, whose buckets are all known to the servers
//   after that, whatever was sent     the servers tell what was counted
// A machine that goes down is no other case.
//
// Per round this writes the residual twice and the encoded bytes once: 9 bytes per parameter with
// int8, 10 with bf16 and fp16. For a moment the folder has twice that. Sending waits for the write.
//
//   8 bytes   "LSRESID1"
//   8         length of the record, little endian
//   ...       the record (residual_record.h)
//   4 n       residual before, f32
//   4 n       residual after
//   ...       the contribution, bucket by bucket
//   4         crc32c of all before
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
  // The folder is there, and no other process writes in it. `file_system` outlives the store.
  ResidualStore(FileSystem* file_system, std::string folder, std::string worker_name);

  struct Stored {
    ResidualRecord record;
    std::vector<float> before;
    std::vector<float> after;
    // Returns the bytes of a bucket, as they travel.
    absl::Span<const std::byte> Of(uint32_t bucket) const;

    FileBytes file;
    std::vector<const uint8_t*> places;  // by bucket
  };

  // `before` and `after` are as long as the record says, and `contribution` has the buckets of the
  // record. The file is on the disk when it returns. After an error the file before may still be
  // there. Errors: those of the file system.
  absl::Status Save(const ResidualRecord& record, absl::Span<const float> before,
                    absl::Span<const float> after,
                    absl::Span<const absl::Span<const std::byte>> contribution);
  // Errors: NotFound if nothing is kept; DataLoss naming what is wrong with the file: its length,
  // its checksum, its record; those of the file system.
  absl::StatusOr<Stored> Load();
  // It is no error if there is no file. Errors: those of the file system.
  absl::Status Remove();

  const std::string& path() const { return path_; }
  const std::string& worker_name() const { return worker_name_; }

 private:
  FileSystem* const file_system_;
  const std::string folder_;
  const std::string worker_name_;
  const std::string path_;
};

}  // namespace lodestar::trainer
