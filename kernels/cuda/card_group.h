// The cards of a process as a DeviceGroup.
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

// Where as many threads as there are members wait for each other.
class Meeting {
 public:
  explicit Meeting(int members) : members_(members) {}
  // Returns when all members have called. Errors: that of Fail().
  absl::Status Meet();
  void Fail(const absl::Status& why);
  // Whether there was a failure, which is forgotten.
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

class CardGroup final : public DeviceGroup {
 public:
  // `cards`: at least one; their streams and Errors outlive the group. Errors: those of
  // MakeCardLinks() and of making streams and events.
  static absl::StatusOr<std::unique_ptr<DeviceGroup>> Create(const std::vector<GroupCard>& cards,
                                                             NcclLoader load_nccl);
  // Waits for operations under way.
  ~CardGroup() override;

  int size() const override { return static_cast<int>(members_.size()); }
  std::string Describe() const override { return links_->Describe(); }
  void Begin(int member) override;
  absl::StatusOr<int64_t> Broadcast(int member, Buf values) override;
  absl::StatusOr<int64_t> Reduce(int member, Buf values) override;
  void Await(int member, int64_t operation) override;
  void Fail(const absl::Status& why) override;
  void Reset() override;

 private:
  static constexpr int64_t kEvents = 256;

  // Used by the member's thread; others read `done` between two meetings.
  struct Member {
    GroupCard card;
    Stream stream;
    Event ready;  // of the operation at hand
    Event begun;  // see Begin()
    Event done;   // what the member itself does of the operation at hand
    // Of operations by number, in turn: one that was recorded again stands for a later point.
    std::array<Event, kEvents> finished;
    int64_t num_operations = 0;
  };
  using Operation = void (CardLinks::*)(int member, absl::Span<const CardPart> parts,
                                        cudaStream_t stream);

  CardGroup(const std::vector<GroupCard>& cards, std::unique_ptr<CardLinks> links);
  absl::StatusOr<int64_t> Run(Operation operation, int member, Buf values, cudaEvent_t ready);
  // The member's stream goes on when all members are done with the operation at hand.
  absl::Status AwaitOthers(int member);

  std::vector<Member> members_;
  // Of operations with an even and with an odd number: who is done with one writes the next one's
  // while others still read.
  std::array<std::vector<CardPart>, 2> parts_;
  const std::unique_ptr<CardLinks> links_;
  Meeting meeting_;
};

}  // namespace lodestar::cuda
