// SPDX-License-Identifier: Apache-2.0

// WorkerProcesses knows the workers whose process runs on this machine, and whether that process
// has ended. It uses a pidfd, which fires when the process has ended, whatever happens to its
// connections. It does not fire while the process is stopped, frozen or swapped out. The class is
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/file_descriptor.h"
#include "common/runtime/ids.h"

namespace lodestar::rpc {

class WorkerProcesses {
 public:
  // Maximum number of processes that are watched. If this process may open few files, the maximum
  // is lower: a sixteenth of that number. A worker whose process is not watched is dropped only
  // when its lease ends.
  static constexpr size_t kMaxProcesses = 4096;

  WorkerProcesses();

  // Returns a pidfd of the process, or no descriptor if the system has none. Must be called before
  // the process proves that it is the worker. Otherwise the process could end first, and another
  // process could get its number.
  static FileDescriptor Find(int64_t process_id);

  // Watches the process of an incarnation. Ends the watch of older incarnations of the worker.
  // `process` is the result of Find(). If it is no descriptor, the call does nothing.
  void Watch(const messages::WorkerLife& life, FileDescriptor process) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the incarnations whose process has ended since the last call. Does not block.
  std::vector<messages::WorkerLife> TakeEnded() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Process {
    Incarnation incarnation;
    FileDescriptor process;
  };

  const size_t most_;
  absl::Mutex mutex_;
  std::map<WorkerId, Process> processes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
