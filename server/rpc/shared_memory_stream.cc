// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/shared_memory_stream.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {
namespace {

constexpr size_t kMaxRegions = 4096;
constexpr int kMaxOpening = 256;
// Maximum number of regions of a worker. For a short time a worker may have regions of an old and
// of a new connection. Each region has about 24 MiB.
constexpr int kMaxRegionsOfWorker = 8;
constexpr uint64_t kMaxRegionBytes = uint64_t{256} << 20;
// Maximum number of bytes of all regions. The limit exists because the system may count pages of a
// region as memory of this server.
constexpr uint64_t kMaxBytes = uint64_t{16} << 30;
constexpr size_t kMaxBlocks = 4096;
// Minimum size of a block. The smallest chunk of every encoding fits into a block of this size.
constexpr size_t kMinBlockBytes = 1024;

// Returns a name that cannot be guessed, because knowing the name is enough to use a region.
uint64_t RandomName() {
  std::random_device random;
  return ((static_cast<uint64_t>(random()) << 32) | random()) | 1;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemoryStream>> SharedMemoryRegions::Find(
    uint64_t name, WorkerId worker) const {
  absl::MutexLock lock(&mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end() && found->second->worker() == worker) return found->second;
  return absl::UnavailableError(absl::StrCat(
      "worker ", worker.value(),
      " refers to shared memory that this server does not have open; workers then send "
      "the data through the connection"));
}

int SharedMemoryRegions::size() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(by_name_.size());
}

absl::Status SharedMemoryRegions::CheckRoom(WorkerId worker, uint64_t bytes) const {
  absl::MutexLock lock(&mutex_);
  return CheckRoomLocked(worker, bytes);
}

absl::Status SharedMemoryRegions::CheckRoomLocked(WorkerId worker, uint64_t bytes) const {
  if (!is_enabled_ || is_closed_) {
    return absl::FailedPreconditionError(
        "this server does not share memory now; the worker uses TCP instead");
  }
  if (bytes > kMaxRegionBytes) {
    refusals_->Count(limits::LimitReached::kSharedMemory);
    return absl::FailedPreconditionError(absl::StrCat("the region of shared memory has ", bytes,
                                                      " bytes; allowed are at most ",
                                                      kMaxRegionBytes));
  }
  int of_worker = 0;
  uint64_t all_bytes = bytes;
  for (const auto& [name, stream] : by_name_) {
    if (stream->worker() == worker) ++of_worker;
    all_bytes += stream->region().size();
  }
  if (of_worker >= kMaxRegionsOfWorker) {
    refusals_->Count(limits::LimitReached::kSharedMemory);
    return absl::FailedPreconditionError(absl::StrCat("worker ", worker.value(), " shares ",
                                                      of_worker,
                                                      " regions of memory already, the maximum"));
  }
  if (by_name_.size() >= kMaxRegions || all_bytes > kMaxBytes) {
    refusals_->Count(limits::LimitReached::kSharedMemory);
    return absl::FailedPreconditionError(absl::StrCat(
        "this server shares memory with ", by_name_.size(), " workers already, with ", all_bytes,
        " bytes in all; allowed are at most ", kMaxRegions, " workers and ", kMaxBytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryRegions::Add(uint64_t name, std::shared_ptr<SharedMemoryStream> stream) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckRoomLocked(stream->worker(), stream->region().size()));
  by_name_.emplace(name, std::move(stream));
  return absl::OkStatus();
}

void SharedMemoryRegions::Remove(uint64_t name) {
  std::shared_ptr<SharedMemoryStream> removed;
  absl::MutexLock lock(&mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return;
  removed = std::move(found->second);
  by_name_.erase(found);
}

bool SharedMemoryRegions::TryBeginOpening() {
  absl::MutexLock lock(&mutex_);
  if (num_opening_ == kMaxOpening) {
    refusals_->Count(limits::LimitReached::kSharedMemory);
    return false;
  }
  ++num_opening_;
  return true;
}

void SharedMemoryRegions::EndOpening() {
  absl::MutexLock lock(&mutex_);
  --num_opening_;
}

void SharedMemoryRegions::Close() {
  std::map<uint64_t, std::shared_ptr<SharedMemoryStream>> ended;
  {
    absl::MutexLock lock(&mutex_);
    is_closed_ = true;
    ended.swap(by_name_);
  }
  for (const auto& [name, stream] : ended) {
    stream->Close(absl::UnavailableError("the server shuts down"));
  }
}

grpc::ServerBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply>* SharedMemoryStream::Start(
    std::shared_ptr<SharedMemoryRegions> regions, std::shared_ptr<StreamWatch> watch,
    std::shared_ptr<WorkerProcesses> processes, LifeCheck check_life) {
  std::shared_ptr<SharedMemoryStream> stream(
      new SharedMemoryStream(std::move(regions), std::move(processes), std::move(check_life)));
  stream->self_ = stream;
  stream->is_opening_ = stream->regions_->TryBeginOpening();
  if (!stream->is_opening_) {
    stream->Close(absl::ResourceExhaustedError(
        absl::StrCat(kMaxOpening,
                     " calls to this server are setting up shared memory, the maximum. The worker "
                     "uses TCP instead; nothing needs to be done")));
    return stream.get();
  }
  watch->Add(std::weak_ptr<WatchedStream>(stream));
  stream->AwaitPeer();
  stream->StartRead(&stream->request_);
  return stream.get();
}

SharedMemoryStream::SharedMemoryStream(std::shared_ptr<SharedMemoryRegions> regions,
                                       std::shared_ptr<WorkerProcesses> processes,
                                       LifeCheck check_life)
    : regions_(std::move(regions)),
      processes_(std::move(processes)),
      check_life_(std::move(check_life)),
      name_(RandomName()) {}

absl::Status SharedMemoryStream::Open() {
  worker_ = WorkerId(request_.worker_id());
  const messages::WorkerLife life = {worker_, Incarnation(request_.incarnation())};
  RETURN_IF_ERROR(check_life_(life));
  if (request_.block_bytes() < kMinBlockBytes || request_.block_bytes() > wire::kMaxChunkBytes ||
      request_.block_bytes() % sizeof(float) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory in blocks of ", request_.block_bytes(),
                     " bytes is not possible; allowed are multiples of 4 from ", kMinBlockBytes,
                     " to ", wire::kMaxChunkBytes));
  }
  block_bytes_ = static_cast<int64_t>(request_.block_bytes());
  RETURN_IF_ERROR(regions_->CheckRoom(worker_, request_.bytes()));
  // The pidfd is opened before SharedRegion::Open() proves that the caller is the process with this
  // id. In the other order, the process could end and another could get its id.
  FileDescriptor process;
  if (!request_.outlives_process()) process = WorkerProcesses::Find(request_.process_id());
  ASSIGN_OR_RETURN(storage::SharedRegion region,
                   storage::SharedRegion::Open({request_.process_id(), request_.file_descriptor(),
                                                request_.nonce(), request_.bytes()}));
  region_.emplace(std::move(region));
  processes_->Watch(life, std::move(process));
  RETURN_IF_ERROR(TakeGrants());
  RETURN_IF_ERROR(regions_->Add(name_, shared_from_this()));
  {
    absl::MutexLock lock(&mutex_);
    if (!is_closed_) {
      pending_.set_region(name_);
      ContinueLocked();
      return absl::OkStatus();
    }
  }
  // The stream was closed before it was added to the regions, so it must be removed from them here.
  regions_->Remove(name_);
  return absl::CancelledError("the client is gone");
}

absl::Status SharedMemoryStream::TakeGrants() {
  std::vector<std::function<void()>> waiting;
  {
    absl::MutexLock lock(&mutex_);
    for (const uint64_t offset : request_.writable()) {
      RETURN_IF_ERROR(region_->Part(offset, block_bytes_).status());
      if (writable_.size() == kMaxBlocks) {
        return absl::InvalidArgumentError(
            absl::StrCat("shared memory: more than ", kMaxBlocks,
                         " blocks are offered as writable, the maximum"));
      }
      writable_.push_back(offset);
    }
    waiting.swap(waiting_);
  }
  for (const std::function<void()>& retry : waiting) retry();
  return absl::OkStatus();
}

void SharedMemoryStream::OnReadDone(bool ok) {
  StopAwaitingPeer();
  if (std::exchange(is_opening_, false)) regions_->EndOpening();
  if (!ok) return Close(absl::OkStatus());
  const absl::Status status = region_.has_value() ? TakeGrants() : Open();
  if (!status.ok()) return Close(status);
  absl::MutexLock lock(&mutex_);
  if (!is_finished_) StartRead(&request_);
}

void SharedMemoryStream::MarkRead(uint64_t offset) {
  absl::MutexLock lock(&mutex_);
  if (is_closed_) return;
  pending_.add_read(offset);
  ContinueLocked();
}

SharedMemoryStream::Answer SharedMemoryStream::TakeBlock(Block& block,
                                                         std::function<void()> retry) {
  absl::MutexLock lock(&mutex_);
  if (is_closed_) return Answer::kClosed;
  if (writable_.empty()) {
    waiting_.push_back(std::move(retry));
    return Answer::kWait;
  }
  block.offset = writable_.back();
  writable_.pop_back();
  block.memory = *region_->Part(block.offset, block_bytes_);
  return Answer::kTaken;
}

void SharedMemoryStream::ContinueLocked() {
  if (is_finished_ || is_writing_) return;
  if (is_closed_) {
    if (!is_removed_) return;
    is_finished_ = true;
    return Finish(wire::ToGrpcStatus(end_status_));
  }
  if (pending_.region() == 0 && pending_.read_size() == 0) return;
  is_writing_ = true;
  writing_.Swap(&pending_);
  pending_.Clear();
  StartWrite(&writing_);
}

void SharedMemoryStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
    ContinueLocked();
  }
  if (!ok) Close(absl::CancelledError("the client is gone"));
}

void SharedMemoryStream::Close(const absl::Status& status) {
  std::vector<std::function<void()>> waiting;
  {
    absl::MutexLock lock(&mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    end_status_ = status;
    waiting.swap(waiting_);
  }
  regions_->Remove(name_);
  {
    absl::MutexLock lock(&mutex_);
    is_removed_ = true;
    ContinueLocked();
  }
  for (const std::function<void()>& retry : waiting) retry();
}

void SharedMemoryStream::OnCancel() { Close(absl::CancelledError("the client is gone")); }

void SharedMemoryStream::OnDone() { self_.reset(); }

}  // namespace lodestar::rpc
