// Workers whose process runs on this machine, and whether that process has ended. A pidfd tells: it
// fires when the process has ended for good, whatever becomes of connections, and not while the
// process is stopped, frozen or swapped out. Thread-safe.
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
  // At most so many processes are watched, and no more than a sixteenth of the files that this
  // process may open. For others the lease decides.
  static constexpr size_t kMaxProcesses = 4096;

  WorkerProcesses();

  // Returns a pidfd of the process, or no descriptor where the system has none to give. Call it
  // before the process proves that it is the worker, so that no other process can have its number.
  static FileDescriptor Find(int64_t process_id);

  // Watches the process of a life, in the place of older lives of the worker. REQUIRES: `process`
  // is from Find(), or no descriptor, which is ignored.
  void Watch(const WorkerLife& life, FileDescriptor process) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the lives whose process has ended since the last call. Does not block.
  std::vector<WorkerLife> TakeEnded() ABSL_LOCKS_EXCLUDED(mutex_);

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
