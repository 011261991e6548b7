// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/testing/emulated_nccl.h"

#include <atomic>
#include <barrier>
#include <memory>
#include <utility>
#include <vector>

#include "common/runtime/check.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/resources.h"

namespace lodestar::cuda {
namespace {

constexpr NcclResult kUnhandledCudaError = static_cast<NcclResult>(1);

std::atomic<int64_t> num_operations = 0;
std::atomic<bool> operations_wait = false;
std::atomic<int> async_error = 0;
std::atomic<bool> first_operations_fail = false;

struct Rank {
  const float* from = nullptr;
  size_t count = 0;
  Event ready;
  Event done;
};

// Communicators that were created together.
struct Clique {
  explicit Clique(int count) : ranks(count), everybody(count) {}
  std::atomic<int> num_connected = 0;  // ranks that have called an operation in a group
  std::vector<Rank> ranks;
  std::barrier<> everybody;
  // Shared, because kernels that wait for this flag may exist longer than the clique.
  const std::shared_ptr<std::atomic<bool>> is_aborted = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

struct NcclCommunicator {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
};

namespace {

Event NewEvent() {
  Event event;
  LODESTAR_CHECK(Make(&event, [](cudaEvent_t* handle) {
                   return cudaEventCreateWithFlags(handle, cudaEventDisableTiming);
                 }) == cudaSuccess);
  return event;
}

NcclResult InitAll(NcclCommunicator** communicators, int count, const int* devices) {
  auto clique = std::make_shared<Clique>(count);
  for (int rank = 0; rank < count; ++rank) {
    if (cudaSetDevice(devices[rank]) != cudaSuccess) return kUnhandledCudaError;
    clique->ranks[rank].ready = NewEvent();
    clique->ranks[rank].done = NewEvent();
    communicators[rank] = new NcclCommunicator{clique, rank, devices[rank]};
  }
  return kNcclSuccess;
}

NcclResult FailToInit(NcclCommunicator** /*communicators*/, int /*count*/, const int* /*devices*/) {
  return kUnhandledCudaError;
}

NcclResult Destroy(NcclCommunicator* communicator) {
  delete communicator;
  return kNcclSuccess;
}

NcclResult Abort(NcclCommunicator* communicator) {
  *communicator->clique->is_aborted = true;
  return Destroy(communicator);
}

NcclResult AsyncError(NcclCommunicator* communicator, NcclResult* error) {
  LODESTAR_CHECK(!*communicator->clique->is_aborted) << "a communicator is used after its abort";
  *error = static_cast<NcclResult>(async_error.load());
  return kNcclSuccess;
}

// Stands for a kernel that runs until its communicator is aborted. Checks that the abort has
// already happened. On a real card, the kernel would otherwise never end.
void AwaitAbort(const std::shared_ptr<std::atomic<bool>>& is_aborted) {
  LODESTAR_CHECK(*is_aborted) << "it would wait for ever";
}

NcclResult Version(int* version) {
  *version = 22809;
  return kNcclSuccess;
}

const char* ErrorString(NcclResult result) {
  return result == kNcclSuccess ? "no error" : "unhandled cuda error";
}

// True between GroupStart() and GroupEnd(). Meanwhile one thread calls an operation for several
// ranks, one after the other, and no call waits for another rank. The only effect of these calls is
// that the ranks count as connected.
thread_local bool is_in_group = false;

NcclResult GroupStart() {
  LODESTAR_CHECK(!std::exchange(is_in_group, true));
  return kNcclSuccess;
}

NcclResult GroupEnd() {
  LODESTAR_CHECK(std::exchange(is_in_group, false));
  return first_operations_fail ? kUnhandledCudaError : kNcclSuccess;
}

// Waits until all ranks have called the operation. Then `work` queues the part of this rank on its
// stream.
template <typename Work>
NcclResult Collective(NcclCommunicator* communicator, const float* from, size_t count,
                      cudaStream_t stream, Work work) {
  if (is_in_group) {
    ++communicator->clique->num_connected;
    return kNcclSuccess;
  }
  ++num_operations;
  LODESTAR_CHECK(communicator->clique->num_connected >=
                 static_cast<int>(communicator->clique->ranks.size()))
      << "a first operation would block until all ranks call it, whatever becomes of them";
  LODESTAR_CHECK(!*communicator->clique->is_aborted) << "a communicator is used after its abort";
  if (operations_wait) {
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 1;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, AwaitAbort, communicator->clique->is_aborted) == cudaSuccess
               ? kNcclSuccess
               : kUnhandledCudaError;
  }
  Clique& clique = *communicator->clique;
  Rank& self = clique.ranks[communicator->rank];
  int device = -1;
  cudaGetDevice(&device);
  LODESTAR_CHECK(device == communicator->device) << "another rank's card is chosen";
  self.from = from;
  self.count = count;
  LODESTAR_CHECK(cudaEventRecord(self.ready.get(), stream) == cudaSuccess);
  clique.everybody.arrive_and_wait();
  for (const Rank& rank : clique.ranks) {
    LODESTAR_CHECK(rank.count == count) << "ranks with different counts";
    cudaStreamWaitEvent(stream, rank.ready.get());
  }
  work(clique);
  LODESTAR_CHECK(cudaEventRecord(self.done.get(), stream) == cudaSuccess);
  clique.everybody.arrive_and_wait();
  for (const Rank& rank : clique.ranks) cudaStreamWaitEvent(stream, rank.done.get());
  clique.everybody.arrive_and_wait();
  return kNcclSuccess;
}

NcclResult Broadcast(const void* from, void* to, size_t count, NcclDataType type, int root,
                     NcclCommunicator* communicator, cudaStream_t stream) {
  LODESTAR_CHECK(type == kNcclFloat32 && root == 0);
  return Collective(
      communicator, static_cast<const float*>(from), count, stream, [&](Clique& clique) {
        if (communicator->rank == 0) return;
        cudaMemcpyAsync(to, clique.ranks[0].from, count * sizeof(float), cudaMemcpyDefault, stream);
      });
}

// Adds the ranks' values from the last rank to the first. A group without NCCL adds in the opposite
// order. So the result shows whether NCCL was used.
NcclResult Reduce(const void* from, void* to, size_t count, NcclDataType type,
                  NcclReduction reduction, int root, NcclCommunicator* communicator,
                  cudaStream_t stream) {
  LODESTAR_CHECK(type == kNcclFloat32 && reduction == kNcclSum && root == 0 && from == to);
  return Collective(communicator, static_cast<const float*>(from), count, stream,
                    [&](Clique& clique) {
                      if (communicator->rank != 0) return;
                      for (size_t rank = clique.ranks.size() - 1; rank > 0; --rank) {
                        AddScaled(static_cast<float*>(to), clique.ranks[rank].from, 1.0,
                                  static_cast<int64_t>(count), stream);
                      }
                    });
}

}  // namespace

int64_t num_nccl_operations() { return num_operations; }
void SetNcclOperationsWait(bool wait) { operations_wait = wait; }
void SetNcclAsyncError(int error) { async_error = error; }
void SetNcclFirstOperationsFail(bool fail) { first_operations_fail = fail; }

absl::StatusOr<NcclFunctions> LoadEmulatedNccl() {
  return NcclFunctions{.get_version = Version,
                       .get_error_string = ErrorString,
                       .comm_init_all = InitAll,
                       .comm_destroy = Destroy,
                       .comm_abort = Abort,
                       .comm_get_async_error = AsyncError,
                       .group_start = GroupStart,
                       .group_end = GroupEnd,
                       .broadcast = Broadcast,
                       .reduce = Reduce};
}

absl::StatusOr<NcclFunctions> LoadBrokenNccl() {
  absl::StatusOr<NcclFunctions> functions = LoadEmulatedNccl();
  functions->comm_init_all = FailToInit;
  return functions;
}

absl::StatusOr<NcclFunctions> LoadNoNccl() {
  return absl::NotFoundError("libnccl.so.2: cannot open shared object file");
}

}  // namespace lodestar::cuda
