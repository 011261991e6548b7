// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/worker_processes.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace lodestar::rpc {
namespace {

size_t MostProcesses() {
  constexpr rlim_t kFilesOfOne = 16;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return std::min<rlim_t>(limit.rlim_cur / kFilesOfOne, WorkerProcesses::kMaxProcesses);
}

}  // namespace

WorkerProcesses::WorkerProcesses() : most_(MostProcesses()) {}

FileDescriptor WorkerProcesses::Find(int64_t process_id) {
  if (process_id <= 0 || process_id > std::numeric_limits<pid_t>::max()) return FileDescriptor();
  return FileDescriptor(
      static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process_id), 0)));
}

void WorkerProcesses::Watch(const messages::WorkerLife& life, FileDescriptor process) {
  if (!process.is_open()) return;
  absl::MutexLock lock(&mutex_);
  const auto found = processes_.find(life.worker);
  if (found == processes_.end()) {
    if (processes_.size() >= most_) return;
    processes_.emplace(life.worker, Process{life.incarnation, std::move(process)});
  } else if (found->second.incarnation <= life.incarnation) {
    found->second = {life.incarnation, std::move(process)};
  }
}

std::vector<messages::WorkerLife> WorkerProcesses::TakeEnded() {
  absl::MutexLock lock(&mutex_);
  std::vector<pollfd> looks;
  std::vector<WorkerId> workers;
  for (const auto& [worker, process] : processes_) {
    looks.push_back({process.process.get(), POLLIN, 0});
    workers.push_back(worker);
  }
  std::vector<messages::WorkerLife> ended;
  if (looks.empty() || poll(looks.data(), looks.size(), /*timeout=*/0) <= 0) return ended;
  for (size_t i = 0; i < looks.size(); ++i) {
    if (looks[i].revents == 0) continue;
    const auto found = processes_.find(workers[i]);
    ended.push_back({workers[i], found->second.incarnation});
    processes_.erase(found);
  }
  return ended;
}

}  // namespace lodestar::rpc
