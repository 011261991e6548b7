// SPDX-License-Identifier: Apache-2.0

// CardGroup implements DeviceGroup for the cards of one process.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/card_links.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/resources.h"
#include "kernels/device_group.h"

namespace lodestar::cuda {

// A barrier at which the threads of all members wait for each other. Thread-safe.
class Meeting {
 public:
  explicit Meeting(int members) : members_(members) {}
  // Blocks until all members have called Meet(). Errors: the status passed to Fail().
  absl::Status Meet();
  void Fail(const absl::Status& why);
  // Clears the failure of Fail(). Returns true if there was a failure.
  bool Reset();
  absl::Status failure();

 private:
  const int members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_waiting_ = 0;
  int64_t num_meetings_ = 0;
  absl::Status failure_;
};

class CardGroup final : public kernels::DeviceGroup {
 public:
  // `cards` must not be empty. The streams and Errors of `cards` must outlive the group. Errors:
  // those of MakeCardLinks(), and of creating streams and events.
  static absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>> Create(
      const std::vector<GroupCard>& cards, NcclLoader load_nccl);
  // Blocks until all queued operations are done.
  ~CardGroup() override;

  int size() const override { return static_cast<int>(members_.size()); }
  std::string Describe() const override { return links_->Describe(); }
  void Begin(int member) override;
  absl::StatusOr<int64_t> Broadcast(int member, kernels::Buf values) override;
  absl::StatusOr<int64_t> Reduce(int member, kernels::Buf values) override;
  void Await(int member, int64_t operation) override;
  void Fail(const absl::Status& why) override;
  void Reset() override;

 private:
  static constexpr int64_t kEvents = 256;

  // Used only by the member's own thread. The exception is `done`, which other threads read between
  // two calls of Meet().
  struct Member {
    GroupCard card;
    Stream stream;
    Event ready;  // the current operation may read the values after this event
    Event begun;  // the event that Begin() records
    Event done;   // the member's own part of the current operation is done
    // finished[i] is recorded after operations i, i + kEvents, i + 2 * kEvents and so on. After the
    // event is recorded again, waiting for the earlier operation waits for the later one.
    std::array<Event, kEvents> finished;
    int64_t num_operations = 0;
  };
  using Operation = void (CardLinks::*)(int member, absl::Span<const CardPart> parts,
                                        cudaStream_t stream);

  CardGroup(const std::vector<GroupCard>& cards, std::unique_ptr<CardLinks> links);
  absl::StatusOr<int64_t> Run(Operation operation, int member, kernels::Buf values,
                              cudaEvent_t ready);
  // Makes the member's stream wait until all members have finished their part of the current
  // operation.
  absl::Status AwaitOthers(int member);

  std::vector<Member> members_;
  // Parts of operation `number` are in parts_[number % 2]. Two arrays are needed: while some
  // members still read the parts of one operation, a faster member already writes its part of the
  // next operation.
  std::array<std::vector<CardPart>, 2> parts_;
  const std::unique_ptr<CardLinks> links_;
  Meeting meeting_;
};

}  // namespace lodestar::cuda
