// SPDX-License-Identifier: Apache-2.0

#include "worker/client/shared_memory_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/status_mapping.h"

namespace lodestar::client {

absl::StatusOr<std::shared_ptr<SharedMemoryCall>> SharedMemoryCall::Start(
    const std::shared_ptr<grpc::Channel>& channel, Settings settings) {
  ASSIGN_OR_RETURN(storage::SharedRegion region,
                   storage::SharedRegion::Create(2 * settings.blocks * settings.block_bytes));
  std::shared_ptr<SharedMemoryCall> call(
      new SharedMemoryCall(channel, std::move(region), std::move(settings)));
  call->Begin();
  return call;
}

SharedMemoryCall::SharedMemoryCall(const std::shared_ptr<grpc::Channel>& channel,
                                   storage::SharedRegion region, Settings settings)
    : stub_(v1::ParameterService::NewStub(channel)),
      region_(std::move(region)),
      settings_(std::move(settings)),
      owners_(settings_.blocks, nullptr) {
  for (int i = 0; i < settings_.blocks; ++i) free_.push_back(OffsetOf(i));
}

SharedMemoryCall::~SharedMemoryCall() {
  if (is_registered()) settings_.registry->Unregister(region_.memory());
}

void SharedMemoryCall::Begin() {
  if (!settings_.life_secret.empty())
    context_.AddMetadata(wire::kLifeSecretKey, settings_.life_secret);
  stub_->async()->ShareMemory(&context_, this);
  // AddHold() keeps the call alive until OnReadDone(false), because writes start outside of gRPC's
  // callbacks.
  AddHold();
  absl::MutexLock lock(&mutex_);
  const storage::SharedRegion::Handle& handle = region_.handle();
  pending_.set_worker_id(settings_.life.worker.value());
  pending_.set_incarnation(settings_.life.incarnation.value());
  pending_.set_process_id(handle.process_id);
  pending_.set_file_descriptor(handle.descriptor);
  pending_.set_nonce(handle.nonce);
  pending_.set_bytes(handle.bytes);
  pending_.set_block_bytes(block_bytes());
  pending_.set_outlives_process(settings_.outlives_process);
  const int blocks = settings_.blocks;
  for (int i = 0; i < blocks; ++i) pending_.add_writable(OffsetOf(blocks + i));
  has_pending_ = true;
  WriteLocked();
  StartRead(&reply_);
  StartCall();
}

bool SharedMemoryCall::is_open() const {
  absl::MutexLock lock(&mutex_);
  return name_ != 0 && !is_closed_;
}

bool SharedMemoryCall::is_done() const {
  absl::MutexLock lock(&mutex_);
  return is_done_;
}

bool SharedMemoryCall::is_registered() const {
  absl::MutexLock lock(&mutex_);
  return is_registered_;
}

uint64_t SharedMemoryCall::name() const {
  absl::MutexLock lock(&mutex_);
  return name_;
}

absl::Status SharedMemoryCall::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

SharedMemoryCall::Answer SharedMemoryCall::TakeBlock(const void* owner, Block& block,
                                                     std::function<void()> retry) {
  absl::MutexLock lock(&mutex_);
  if (is_closed_) return Answer::kNone;
  if (free_.empty()) {
    if (std::find(owners_.begin(), owners_.end(), owner) == owners_.end()) return Answer::kNone;
    waiting_.push_back(std::move(retry));
    return Answer::kWait;
  }
  block.offset = free_.back();
  free_.pop_back();
  owners_[block.offset / block_bytes()] = owner;
  block.memory = *region_.Part(block.offset, block_bytes());
  return Answer::kTaken;
}

absl::Status SharedMemoryCall::MarkRead(uint64_t offset) {
  absl::MutexLock lock(&mutex_);
  if (offset % block_bytes() != 0 || offset < OffsetOf(settings_.blocks) ||
      offset >= OffsetOf(2 * settings_.blocks)) {
    return absl::DataLossError(absl::StrCat(
        "the server wrote at offset ", offset,
        " of shared memory, where it may not write; use the same release on both sides"));
  }
  if (is_closed_) return absl::OkStatus();
  pending_.add_writable(offset);
  has_pending_ = true;
  WriteLocked();
  return absl::OkStatus();
}

void SharedMemoryCall::WriteLocked() {
  if (is_writing_ || is_closed_ || !has_pending_) return;
  is_writing_ = true;
  has_pending_ = false;
  writing_.Swap(&pending_);
  pending_.Clear();
  StartWrite(&writing_);
}

void SharedMemoryCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  is_writing_ = false;
  // After a failed write the call is over, and OnReadDone() follows.
  if (ok) WriteLocked();
}

void SharedMemoryCall::Settle(const absl::Status& status) {
  if (std::exchange(is_settled_, true) || settings_.on_settled == nullptr) return;
  settings_.on_settled(status);
}

void SharedMemoryCall::Accepted(uint64_t name) {
  const absl::Status touched = region_.Touch();
  const bool registers = touched.ok() && settings_.registry != nullptr;
  absl::Status registered;
  if (registers) registered = settings_.registry->Register(region_.memory());
  {
    absl::MutexLock lock(&mutex_);
    is_registered_ = registers && registered.ok();
    if (touched.ok()) {
      name_ = name;
    } else {
      is_closed_ = true;
      status_ = touched;
    }
  }
  if (!touched.ok()) End();
  Settle(touched);
  if (registers && settings_.on_registered != nullptr) settings_.on_registered(registered);
}

void SharedMemoryCall::OnReadDone(bool ok) {
  if (ok && reply_.region() != 0 && !is_settled_) Accepted(reply_.region());
  std::vector<std::function<void()>> waiting;
  {
    absl::MutexLock lock(&mutex_);
    if (!ok) is_closed_ = true;
    for (const uint64_t offset : reply_.read()) {
      const uint64_t block = offset / block_bytes();
      // Skips a block that is free already or is not for pushes. Otherwise the block would be in
      // the list of free blocks twice.
      if (!ok || block >= owners_.size() || owners_[block] == nullptr) continue;
      owners_[block] = nullptr;
      free_.push_back(OffsetOf(static_cast<int>(block)));
    }
    waiting.swap(waiting_);
  }
  for (const std::function<void()>& retry : waiting) retry();
  if (ok) {
    StartRead(&reply_);
  } else {
    RemoveHold();
  }
}

void SharedMemoryCall::OnDone(const grpc::Status& status) {
  absl::Status result = wire::FromGrpcStatus(status);
  if (result.ok())
    result = absl::UnavailableError(
        "the server has ended the call through which this worker shares memory with it");
  Settle(result);
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = result;
  is_done_ = true;
}

void SharedMemoryCall::AwaitDone() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&is_done_));
}

}  // namespace lodestar::client
