// InnerStateStore: the state of a worker's inner optimizer in two files of the worker's own folder,
// for the next process of its name. A worker that is told to stop writes it once its work is handed
// in; the process that goes on takes it with its first local steps and removes it, so that no state
// is used twice.
//
//   inner.safetensors  the vectors, "0" and "1", fp32
//   inner.json         the record, with the length and checksum of the other file; written after it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "common/storage/file_system.h"

namespace lodestar::trainer {

// Describes what a state belongs to.
struct InnerStateRecord {
  std::string worker_name;
  std::string job;          // The settings that the state belongs to, as text.
  std::string layout_hash;  // The hash of the model's layout.
  Round round;              // The first round that comes after the state.
  int64_t steps = 0;        // The steps of the inner optimizer since its state was zero.
  friend bool operator==(const InnerStateRecord&, const InnerStateRecord&) = default;
};

class InnerStateStore {
 public:
  // The folder is there, and only this process uses it. `file_system` outlives the store.
  InnerStateStore(FileSystem* file_system, std::string folder, std::string worker_name);

  // Fills `values` with vector number `index`.
  using ReadVector = absl::FunctionRef<absl::Status(int index, absl::Span<float> values)>;
  // Writes `num_vectors` vectors of `num_elements`, one in memory at a time. The state is on disk
  // when this returns. After an error there is no state. Errors: those of the file system and of
  // `read`.
  absl::Status Save(InnerStateRecord record, int num_vectors, int64_t num_elements,
                    ReadVector read);

  struct Stored {
    InnerStateRecord record;
    std::vector<std::vector<float>> vectors;
  };
  // Errors: NotFound if nothing is kept; DataLoss naming what is wrong with the files; those of the
  // file system.
  absl::StatusOr<Stored> Load() const;
  // It is no error if there is no state. Errors: those of the file system.
  absl::Status Remove();

  const std::string& worker_name() const { return worker_name_; }
  const std::string& path() const { return record_path_; }

 private:
  FileSystem* const file_system_;
  const std::string folder_;
  const std::string worker_name_;
  const std::string record_path_;
  const std::string vectors_path_;
};

}  // namespace lodestar::trainer
