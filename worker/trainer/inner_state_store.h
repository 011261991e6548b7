// SPDX-License-Identifier: Apache-2.0

// InnerStateStore stores the state of a worker's inner optimizer, in two files in the worker's own
// folder. A worker that is told to stop writes the state after it has pushed its last contribution.
// The next process of the same name reads the state before its first local step. Then it removes
// the files, so that no state is used twice.
//
//   inner.safetensors  the state vectors, named "0" and "1", in fp32
//   inner.json         the InnerStateRecord, with length and checksum of inner.safetensors;
//                      written last
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

// Describes the worker, job and model that a state belongs to.
struct InnerStateRecord {
  std::string worker_name;
  // The job's settings that the state depends on, as text. Only a job with the same text may use
  // the state.
  std::string job;
  std::string layout_hash;  // The hash of the model's layout.
  Round round;              // The first round after the state was stored.
  int64_t steps = 0;        // Steps since the state was zero.
  friend bool operator==(const InnerStateRecord&, const InnerStateRecord&) = default;
};

class InnerStateStore {
 public:
  // Requires: the folder exists, and only this process uses it. `file_system` must outlive the
  // store.
  InnerStateStore(storage::FileSystem* file_system, std::string folder, std::string worker_name);

  // Fills `values` with state vector `index`.
  using ReadVector = absl::FunctionRef<absl::Status(int index, absl::Span<float> values)>;
  // Stores a state of `num_vectors` vectors of `num_elements` each, which `read` delivers. Only one
  // vector is in memory at a time. When Save() returns, the state is on disk. After an error no
  // state is stored. Errors: those of the file system and of `read`.
  absl::Status Save(InnerStateRecord record, int num_vectors, int64_t num_elements,
                    ReadVector read);

  struct Stored {
    InnerStateRecord record;
    std::vector<std::vector<float>> vectors;
  };
  // Returns the stored state. Errors: NotFound (if nothing is stored); DataLoss naming what is
  // wrong with the files; those of the file system.
  absl::StatusOr<Stored> Load() const;
  // Removes the stored state, if there is one. Errors: those of the file system.
  absl::Status Remove();

  const std::string& worker_name() const { return worker_name_; }
  const std::string& path() const { return record_path_; }

 private:
  storage::FileSystem* const file_system_;
  const std::string folder_;
  const std::string worker_name_;
  const std::string record_path_;
  const std::string vectors_path_;
};

}  // namespace lodestar::trainer
