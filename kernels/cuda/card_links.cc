// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/card_links.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/resources.h"

namespace lodestar::cuda {
namespace {

// Links that use copies of the CUDA runtime. Reduce() copies values of the other members, in
// pieces, to memory of member 0. Member 0 adds them to its own values.
class CopyLinks final : public CardLinks {
 public:
  static absl::StatusOr<std::unique_ptr<CardLinks>> Create(const std::vector<GroupCard>& cards,
                                                           std::string why_not_nccl) {
    std::unique_ptr<CopyLinks> links(new CopyLinks(cards, std::move(why_not_nccl)));
    const GroupCard& first = cards.front();
    for (const GroupCard& card : cards) {
      if (&card == &first) continue;
      links->is_direct_ &= EnablePeerAccess(card.ordinal, first.ordinal) &&
                           EnablePeerAccess(first.ordinal, card.ordinal);
    }
    cudaSetDevice(first.ordinal);
    const cudaError_t error = Make(&links->piece_, [](void** memory) {
      return cudaMalloc(memory, kPieceElements * sizeof(float));
    });
    if (error != cudaSuccess) return CudaStatus(first.errors->device(), error, "cudaMalloc");
    return links;
  }

  std::string Describe() const override {
    return absl::StrCat(
        "copies between the cards",
        is_direct_ ? "" : ", through main memory where they do not reach each other",
        "; no NCCL: ", why_not_nccl_);
  }
  bool reaches_into_others() const override { return true; }

  void Broadcast(int member, absl::Span<const CardPart> parts, cudaStream_t stream) override {
    if (member == 0) return;
    Errors& errors = *cards_[member].errors;
    const CardPart& mine = parts[member];
    errors.Check(cudaStreamWaitEvent(stream, parts[0].ready), "cudaStreamWaitEvent");
    errors.Check(cudaMemcpyPeerAsync(mine.values, cards_[member].ordinal, parts[0].values,
                                     cards_[0].ordinal, mine.num_elements * sizeof(float), stream),
                 "cudaMemcpyPeerAsync");
  }

  void Reduce(int member, absl::Span<const CardPart> parts, cudaStream_t stream) override {
    if (member != 0) return;
    Errors& errors = *cards_[0].errors;
    for (size_t other = 1; other < parts.size(); ++other) {
      errors.Check(cudaStreamWaitEvent(stream, parts[other].ready), "cudaStreamWaitEvent");
      for (int64_t begin = 0; begin < parts[0].num_elements; begin += kPieceElements) {
        const int64_t count = std::min(kPieceElements, parts[0].num_elements - begin);
        auto* const piece = static_cast<float*>(piece_.get());
        errors.Check(cudaMemcpyPeerAsync(piece, cards_[0].ordinal, parts[other].values + begin,
                                         cards_[other].ordinal, count * sizeof(float), stream),
                     "cudaMemcpyPeerAsync");
        errors.Check(AddScaled(parts[0].values + begin, piece, 1.0, count, stream), "AddScaled");
      }
    }
  }

 private:
  static constexpr int64_t kPieceElements = int64_t{8} << 20;

  CopyLinks(const std::vector<GroupCard>& cards, std::string why_not_nccl)
      : cards_(cards), why_not_nccl_(std::move(why_not_nccl)) {}

  // Returns true if `card` can copy from and to memory of `other`.
  static bool EnablePeerAccess(int card, int other) {
    int can = 0;
    cudaSetDevice(card);
    const cudaError_t asked = cudaDeviceCanAccessPeer(&can, card, other);
    if (asked != cudaSuccess) cudaGetLastError();  // clears the error, which is handled here
    if (asked != cudaSuccess || can == 0) return false;
    const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    if (error != cudaSuccess) cudaGetLastError();  // clears the error, which is handled here
    return error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled;
  }

  const std::vector<GroupCard> cards_;
  const std::string why_not_nccl_;
  bool is_direct_ = true;
  DeviceMemory piece_;
};

class NcclLinks final : public CardLinks {
 public:
  // Makes the links. Errors: Unavailable with NCCL's message.
  static absl::StatusOr<std::unique_ptr<CardLinks>> Create(const std::vector<GroupCard>& cards,
                                                           const NcclFunctions& nccl) {
    std::unique_ptr<NcclLinks> links(new NcclLinks(cards, nccl));
    int version = 0;
    absl::Status status = links->StatusOf(nccl.get_version(&version));
    if (status.ok()) status = links->Connect();
    if (!status.ok()) return status;
    links->version_ = NcclVersionText(version);
    return links;
  }
  ~NcclLinks() override {
    for (NcclCommunicator* communicator : communicators_) nccl_.comm_destroy(communicator);
  }

  std::string Describe() const override { return absl::StrCat("NCCL ", version_); }
  bool reaches_into_others() const override { return false; }

  void Broadcast(int member, absl::Span<const CardPart> parts, cudaStream_t stream) override {
    const CardPart& mine = parts[member];
    Queue(member, "ncclBroadcast", [&](NcclCommunicator* communicator) {
      return nccl_.broadcast(mine.values, mine.values, mine.num_elements, kNcclFloat32, /*root=*/0,
                             communicator, stream);
    });
  }

  void Reduce(int member, absl::Span<const CardPart> parts, cudaStream_t stream) override {
    const CardPart& mine = parts[member];
    Queue(member, "ncclReduce", [&](NcclCommunicator* communicator) {
      return nccl_.reduce(mine.values, mine.values, mine.num_elements, kNcclFloat32, kNcclSum,
                          /*root=*/0, communicator, stream);
    });
  }

  // Aborting frees the communicators. So Abort() first blocks until no call is queueing an
  // operation on them. This wait is short. Only the first broadcast and the first reduction wait
  // for other members, and RunFirstOperations() has made these.
  void Abort() override {
    std::unique_lock lock(mutex_);
    if (std::exchange(is_aborted_, true)) return;
    idle_.wait(lock, [&] { return num_queueing_ == 0; });
    for (NcclCommunicator* communicator : communicators_) nccl_.comm_abort(communicator);
    communicators_.clear();
  }

  absl::Status Renew() override {
    const std::lock_guard lock(mutex_);
    if (!is_aborted_) return absl::OkStatus();
    if (absl::Status status = Connect(); !status.ok()) return status;
    is_aborted_ = false;
    return absl::OkStatus();
  }

 private:
  NcclLinks(const std::vector<GroupCard>& cards, const NcclFunctions& nccl)
      : cards_(cards), nccl_(nccl) {}

  absl::Status StatusOf(NcclResult result) const {
    if (result == kNcclSuccess) return absl::OkStatus();
    cudaGetLastError();  // clears the error, as NCCL's failures are handled here
    return absl::UnavailableError(
        absl::StrCat("it does not work between these cards: ", nccl_.get_error_string(result)));
  }

  absl::Status Connect() {
    std::vector<int> ordinals;
    for (const GroupCard& card : cards_) ordinals.push_back(card.ordinal);
    communicators_.resize(cards_.size());
    absl::Status status = StatusOf(nccl_.comm_init_all(
        communicators_.data(), static_cast<int>(cards_.size()), ordinals.data()));
    if (!status.ok()) {
      communicators_.clear();
      return status;
    }
    status = RunFirstOperations();
    if (status.ok()) return status;
    for (NcclCommunicator* communicator : communicators_) nccl_.comm_abort(communicator);
    communicators_.clear();
    return status;
  }

  // The first broadcast and the first reduction make NCCL connect the cards. They block until all
  // members have called them, and cannot be aborted if a member fails. So one thread makes these
  // first calls for all members.
  absl::Status RunFirstOperations() {
    std::vector<DeviceMemory> values(cards_.size());
    for (size_t i = 0; i < cards_.size(); ++i) {
      cudaSetDevice(cards_[i].ordinal);
      const cudaError_t error =
          Make(&values[i], [](void** memory) { return cudaMalloc(memory, sizeof(float)); });
      if (error != cudaSuccess) return CudaStatus(cards_[i].errors->device(), error, "cudaMalloc");
    }
    NcclResult result = nccl_.group_start();
    for (size_t i = 0; result == kNcclSuccess && i < cards_.size(); ++i) {
      void* const value = values[i].get();
      cudaStream_t stream = cards_[i].compute;
      result =
          nccl_.broadcast(value, value, 1, kNcclFloat32, /*root=*/0, communicators_[i], stream);
      if (result != kNcclSuccess) break;
      result = nccl_.reduce(value, value, 1, kNcclFloat32, kNcclSum, /*root=*/0, communicators_[i],
                            stream);
    }
    const NcclResult ended = nccl_.group_end();
    if (result == kNcclSuccess) result = ended;
    RETURN_IF_ERROR(StatusOf(result));
    for (const GroupCard& card : cards_) {
      cudaSetDevice(card.ordinal);
      const cudaError_t error = cudaStreamSynchronize(card.compute);
      if (error != cudaSuccess) {
        return CudaStatus(card.errors->device(), error, "cudaStreamSynchronize");
      }
    }
    return absl::OkStatus();
  }

  // Queues an operation, unless the communicators are aborted. Also asks NCCL for errors of earlier
  // operations and stores them in the member's Errors, because no other call returns them.
  void Queue(int member, const char* call, absl::FunctionRef<NcclResult(NcclCommunicator*)> queue) {
    NcclCommunicator* communicator = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (communicators_.empty()) return;
      ++num_queueing_;
      communicator = communicators_[member];
    }
    NcclResult failure = kNcclSuccess;
    Check(member, "ncclCommGetAsyncError", nccl_.comm_get_async_error(communicator, &failure));
    Check(member, "an earlier operation of NCCL", failure);
    Check(member, call, queue(communicator));
    const std::lock_guard lock(mutex_);
    --num_queueing_;
    idle_.notify_all();
  }

  void Check(int member, const char* call, NcclResult result) {
    if (result == kNcclSuccess) return;
    Errors& errors = *cards_[member].errors;
    errors.Note(absl::InternalError(
        absl::StrCat(errors.device(), ": ", call, " failed: ", nccl_.get_error_string(result))));
  }

  const std::vector<GroupCard> cards_;
  const NcclFunctions nccl_;
  std::string version_;
  std::mutex mutex_;
  std::condition_variable idle_;
  // mutex_ guards the following members.
  bool is_aborted_ = false;
  int num_queueing_ = 0;
  std::vector<NcclCommunicator*> communicators_;  // empty after Abort()
};

}  // namespace

absl::StatusOr<std::unique_ptr<CardLinks>> MakeCardLinks(const std::vector<GroupCard>& cards,
                                                         NcclLoader load_nccl) {
  const absl::StatusOr<NcclFunctions> nccl =
      load_nccl != nullptr ? load_nccl() : absl::NotFoundError("this build does not look for it");
  if (!nccl.ok()) return CopyLinks::Create(cards, std::string(nccl.status().message()));
  absl::StatusOr<std::unique_ptr<CardLinks>> links = NcclLinks::Create(cards, *nccl);
  if (links.ok()) return links;
  return CopyLinks::Create(cards, std::string(links.status().message()));
}

}  // namespace lodestar::cuda
