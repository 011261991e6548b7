// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/card_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"

namespace lodestar::cuda {
namespace {

absl::Status CheckAlike(absl::Span<const CardPart> parts) {
  for (const CardPart& part : parts) {
    if (part.num_elements == parts.front().num_elements) continue;
    return absl::InternalError(absl::StrCat(
        "cards of one worker exchange different parts of the model: ", parts.front().num_elements,
        " and ", part.num_elements, " elements; please report this"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Meeting::Meet() {
  std::unique_lock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (++num_waiting_ == members_) {
    num_waiting_ = 0;
    ++num_meetings_;
    changed_.notify_all();
    return absl::OkStatus();
  }
  const int64_t meeting = num_meetings_;
  changed_.wait(lock, [&] { return num_meetings_ != meeting || !failure_.ok(); });
  return num_meetings_ != meeting ? absl::OkStatus() : failure_;
}

void Meeting::Fail(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = why;
  changed_.notify_all();
}

bool Meeting::Reset() {
  const std::lock_guard lock(mutex_);
  num_waiting_ = 0;
  return !std::exchange(failure_, absl::OkStatus()).ok();
}

absl::Status Meeting::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

CardGroup::CardGroup(const std::vector<GroupCard>& cards, std::unique_ptr<CardLinks> links)
    : members_(cards.size()),
      parts_{std::vector<CardPart>(cards.size()), std::vector<CardPart>(cards.size())},
      links_(std::move(links)),
      meeting_(static_cast<int>(cards.size())) {
  for (size_t i = 0; i < cards.size(); ++i) members_[i].card = cards[i];
}

absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>> CardGroup::Create(
    const std::vector<GroupCard>& cards, NcclLoader load_nccl) {
  LODESTAR_CHECK(!cards.empty());
  absl::StatusOr<std::unique_ptr<CardLinks>> links = MakeCardLinks(cards, load_nccl);
  if (!links.ok()) return links.status();
  std::unique_ptr<CardGroup> group(new CardGroup(cards, *std::move(links)));
  const auto make_event = [](Event* event) {
    return Make(event, [](cudaEvent_t* handle) {
      return cudaEventCreateWithFlags(handle, cudaEventDisableTiming);
    });
  };
  for (Member& member : group->members_) {
    Errors& errors = *member.card.errors;
    bool is_made =
        errors.Check(cudaSetDevice(member.card.ordinal), "cudaSetDevice") &&
        errors.Check(Make(&member.stream,
                          [](cudaStream_t* handle) {
                            return cudaStreamCreateWithFlags(handle, cudaStreamNonBlocking);
                          }),
                     "cudaStreamCreateWithFlags");
    for (Event* event : {&member.ready, &member.begun, &member.done}) {
      is_made = is_made && errors.Check(make_event(event), "cudaEventCreateWithFlags");
    }
    for (Event& event : member.finished) {
      is_made = is_made && errors.Check(make_event(&event), "cudaEventCreateWithFlags");
    }
    if (!is_made) return errors.first();
  }
  return group;
}

CardGroup::~CardGroup() {
  for (Member& member : members_) {
    cudaSetDevice(member.card.ordinal);
    if (member.stream != nullptr) cudaStreamSynchronize(member.stream.get());
  }
}

void CardGroup::Fail(const absl::Status& why) {
  meeting_.Fail(why);
  links_->Abort();
}

void CardGroup::Reset() {
  if (!meeting_.Reset()) return;
  // After a failure, a member's stream may still use the memory of other members. So Reset() blocks
  // until all streams are idle. Members may also have begun different numbers of operations.
  // Reset() sets all of them to the largest.
  int64_t next = 0;
  for (Member& member : members_) {
    cudaSetDevice(member.card.ordinal);
    member.card.errors->Check(cudaStreamSynchronize(member.stream.get()), "cudaStreamSynchronize");
    next = std::max(next, member.num_operations);
  }
  for (Member& member : members_) member.num_operations = next;
  if (absl::Status renewed = links_->Renew(); !renewed.ok()) meeting_.Fail(renewed);
}

void CardGroup::Begin(int member) {
  const GroupCard& card = members_[member].card;
  card.errors->Check(cudaSetDevice(card.ordinal), "cudaSetDevice");
  card.errors->Check(cudaEventRecord(members_[member].begun.get(), card.compute),
                     "cudaEventRecord");
}

absl::StatusOr<int64_t> CardGroup::Broadcast(int member, kernels::Buf values) {
  const Member& self = members_[member];
  return Run(&CardLinks::Broadcast, member, values,
             member == 0 ? self.ready.get() : self.begun.get());
}

absl::StatusOr<int64_t> CardGroup::Reduce(int member, kernels::Buf values) {
  return Run(&CardLinks::Reduce, member, values, members_[member].ready.get());
}

absl::StatusOr<int64_t> CardGroup::Run(Operation operation, int member, kernels::Buf values,
                                       cudaEvent_t ready) {
  LODESTAR_CHECK(values.dtype == kernels::DType::kF32);
  Member& self = members_[member];
  Errors& errors = *self.card.errors;
  cudaStream_t stream = self.stream.get();
  errors.Check(cudaSetDevice(self.card.ordinal), "cudaSetDevice");
  if (ready == self.ready.get()) {
    errors.Check(cudaEventRecord(ready, self.card.compute), "cudaEventRecord");
  }
  const int64_t number = self.num_operations++;
  std::vector<CardPart>& parts = parts_[number % 2];
  parts[member] = {values.as<float>(), values.num_elements, ready};
  if (absl::Status met = meeting_.Meet(); !met.ok()) return met;
  if (absl::Status alike = CheckAlike(parts); !alike.ok()) return alike;
  errors.Check(cudaStreamWaitEvent(stream, ready), "cudaStreamWaitEvent");
  (links_.get()->*operation)(member, parts, stream);
  // If the operation was aborted, the values may be partly changed, and must not be used.
  if (absl::Status failure = meeting_.failure(); !failure.ok()) return failure;
  if (links_->reaches_into_others()) {
    if (absl::Status met = AwaitOthers(member); !met.ok()) return met;
  }
  errors.Check(cudaEventRecord(self.finished[number % kEvents].get(), stream), "cudaEventRecord");
  if (absl::Status status = errors.first(); !status.ok()) return status;
  return number;
}

absl::Status CardGroup::AwaitOthers(int member) {
  Member& self = members_[member];
  Errors& errors = *self.card.errors;
  errors.Check(cudaEventRecord(self.done.get(), self.stream.get()), "cudaEventRecord");
  if (absl::Status met = meeting_.Meet(); !met.ok()) return met;
  for (const Member& other : members_) {
    if (&other == &self) continue;
    errors.Check(cudaStreamWaitEvent(self.stream.get(), other.done.get()), "cudaStreamWaitEvent");
  }
  return absl::OkStatus();
}

void CardGroup::Await(int member, int64_t operation) {
  const Member& self = members_[member];
  LODESTAR_CHECK(operation >= 0 && operation < self.num_operations);
  self.card.errors->Check(cudaSetDevice(self.card.ordinal), "cudaSetDevice");
  self.card.errors->Check(
      cudaStreamWaitEvent(self.card.compute, self.finished[operation % kEvents].get()),
      "cudaStreamWaitEvent");
}

}  // namespace lodestar::cuda
