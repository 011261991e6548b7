// SPDX-License-Identifier: Apache-2.0

// The CUDA runtime API of the emulated cards: errors, devices, memory, streams, events and graphs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/cuda/emulator/runtime.h"

using lodestar::emulator::Card;
using lodestar::emulator::Operation;

namespace {

constexpr int kVersion = 13000;

// Returns the card's stored error (`sticky`) if the card has failed. Otherwise runs `call` with the
// lock held, and returns its result.
template <typename Call>
cudaError_t OnCard(Call call) {
  Card& card = Card::Get();
  const std::lock_guard lock(card.mutex());
  if (card.sticky != cudaSuccess) return card.Result(card.sticky);
  return card.Result(call(card));
}

cudaError_t Wait(Card& card, lodestar::emulator::StreamPoint point) {
  if (const cudaError_t error = card.RefuseIfCapturing(); error != cudaSuccess) return error;
  card.RunUntil(point);
  return card.sticky;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorHostMemoryNotRegistered:
      return "cudaErrorHostMemoryNotRegistered";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "a CUDA error";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  const std::string& failure = Card::Get().kernel_failure;
  if (error == Card::Get().sticky && !failure.empty()) return failure.c_str();
  return cudaGetErrorName(error);
}

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().last;
}

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(Card::Get().mutex());
  return std::exchange(Card::Get().last, Card::Get().sticky);
}

cudaError_t cudaGetDeviceCount(int* count) {
  return OnCard([&](Card& card) {
    *count = card.settings.num_devices;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaSetDevice(int device) {
  return OnCard([&](Card& card) {
    if (device < 0 || device >= card.settings.num_devices) return cudaErrorInvalidDevice;
    Card::CurrentDevice() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = Card::CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return OnCard([&](Card& card) {
    if (device < 0 || device >= card.settings.num_devices) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "emulated card");
    properties->totalGlobalMem = card.settings.memory_bytes;
    properties->major = card.settings.compute_capability / 10;
    properties->minor = card.settings.compute_capability % 10;
    properties->multiProcessorCount = 4;
    properties->sharedMemPerBlockOptin = card.MaxSharedBytes();
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return OnCard([](Card& card) {
    for (cudaStream_t stream : card.streams) {
      if (const cudaError_t error = Wait(card, {stream, stream->queued}); error != cudaSuccess) {
        return error;
      }
    }
    return card.sticky;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return OnCard([&](Card& card) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<size_t>(value) > card.MaxSharedBytes()) {
      return cudaErrorInvalidValue;
    }
    card.shared_bytes_of_kernels[kernel] = static_cast<size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return OnCard([&](Card& card) {
    if (const cudaError_t error = card.RefuseIfCapturing(); error != cudaSuccess) return error;
    *memory = bytes > 0 ? card.AllocateDevice(bytes) : nullptr;
    return *memory != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFree(void* memory) {
  return OnCard([&](Card& card) {
    if (memory == nullptr) return cudaSuccess;
    if (const cudaError_t error = card.RefuseIfCapturing(); error != cudaSuccess) return error;
    return card.Release(memory, Card::Kind::kDevice) ? card.sticky : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  return OnCard([&](Card& card) {
    *memory = card.AllocateHost(bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return OnCard([&](Card& card) {
    if (memory == nullptr) return cudaSuccess;
    return card.Release(memory, Card::Kind::kPinned) ? card.sticky : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned /*flags*/) {
  return OnCard([&](Card& card) { return card.Register(memory, bytes); });
}

cudaError_t cudaHostUnregister(void* memory) {
  return OnCard([&](Card& card) { return card.Unregister(memory); });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return OnCard([&](Card& card) {
    *free_bytes = card.free_bytes();
    *total_bytes = card.settings.memory_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, size_t bytes,
                            cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  return OnCard([&](Card& card) {
    if (card.LeavesAllocation(destination, bytes) || card.LeavesAllocation(source, bytes)) {
      return cudaErrorInvalidValue;
    }
    if (!card.IsAllocated(destination) || !card.IsAllocated(source)) ++card.pageable_copies;
    if (card.IsRegistered(destination) || card.IsRegistered(source)) {
      card.registered_bytes_copied += static_cast<int64_t>(bytes);
    }
    return card.Queue(stream, {.run = [=] { std::memmove(destination, source, bytes); },
                               .after = {},
                               .microseconds = 1.0,
                               .copies = {destination, source}});
  });
}

cudaError_t cudaMemcpyPeerAsync(void* destination, int destination_device, const void* source,
                                int source_device, size_t bytes, cudaStream_t stream) {
  return OnCard([&](Card& card) {
    if (!card.IsOn(destination_device, destination) || !card.IsOn(source_device, source) ||
        card.LeavesAllocation(destination, bytes) || card.LeavesAllocation(source, bytes)) {
      return cudaErrorInvalidValue;
    }
    return card.Queue(stream, {.run = [=] { std::memmove(destination, source, bytes); },
                               .after = {},
                               .microseconds = 1.0});
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return OnCard([&](Card& card) {
    const int count = card.settings.num_devices;
    if (device < 0 || device >= count || peer < 0 || peer >= count) return cudaErrorInvalidDevice;
    *can = card.settings.peers_reach && device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return OnCard([&](Card& card) {
    const bool is_there =
        peer >= 0 && peer < card.settings.num_devices && peer != Card::CurrentDevice();
    if (!is_there || flags != 0 || !card.settings.peers_reach) return cudaErrorInvalidDevice;
    return card.enabled_peers.emplace(Card::CurrentDevice(), peer).second
               ? cudaSuccess
               : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return OnCard([&](Card& card) {
    if (card.LeavesAllocation(memory, bytes)) return cudaErrorInvalidValue;
    return card.Queue(
        stream,
        {.run = [=] { std::memset(memory, value, bytes); }, .after = {}, .microseconds = 1.0});
  });
}

cudaError_t cudaMemset2DAsync(void* memory, size_t pitch, int value, size_t width_bytes,
                              size_t height, cudaStream_t stream) {
  return OnCard([&](Card& card) {
    const size_t bytes = height == 0 ? 0 : (height - 1) * pitch + width_bytes;
    if (width_bytes > pitch || card.LeavesAllocation(memory, bytes)) return cudaErrorInvalidValue;
    return card.Queue(stream, {.run =
                                   [=] {
                                     for (size_t row = 0; row < height; ++row) {
                                       std::memset(static_cast<char*>(memory) + row * pitch, value,
                                                   width_bytes);
                                     }
                                   },
                               .after = {},
                               .microseconds = 1.0});
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  return OnCard([&](Card& card) {
    *stream = new CUstream_st;
    (*stream)->device = Card::CurrentDevice();
    card.streams.push_back(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Card& card = Card::Get();
  const std::lock_guard lock(card.mutex());
  card.RunUntil({stream, stream->queued});
  std::erase(card.streams, stream);
  delete stream;
  return card.Result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return OnCard([&](Card& card) { return Wait(card, {stream, stream->queued}); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  return OnCard([&](Card& card) {
    return card.Queue(stream, {.run = {}, .after = event->point, .microseconds = 0.0});
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return OnCard([&](Card&) {
    *event = new CUevent_st;
    (*event)->device = Card::CurrentDevice();
    (*event)->times = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return OnCard([&](Card&) {
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return OnCard([&](Card& card) {
    if (stream != nullptr && event->device != stream->device) return cudaErrorInvalidResourceHandle;
    event->microseconds = std::make_shared<double>(-1.0);
    event->captured = stream->captured != nullptr;
    const auto reached = event->microseconds;
    const cudaError_t error =
        card.Queue(stream, {.run = [reached] { *reached = Card::Get().microseconds; },
                            .after = {},
                            .microseconds = 0.0});
    if (!event->captured) event->point = {stream, stream->queued};
    return error;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return OnCard([&](Card& card) {
    return event->captured ? cudaErrorCapturedEvent : Wait(card, event->point);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return OnCard([&](Card&) {
    if (event->captured) return cudaErrorCapturedEvent;
    const auto& point = event->point;
    return point.stream == nullptr || point.stream->done >= point.operations ? cudaSuccess
                                                                             : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return OnCard([&](Card&) {
    if (!from->times || !to->times || from->microseconds == nullptr ||
        to->microseconds == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    if (*from->microseconds < 0.0 || *to->microseconds < 0.0) return cudaErrorNotReady;
    *milliseconds = static_cast<float>((*to->microseconds - *from->microseconds) / 1000.0);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  return OnCard([&](Card&) {
    if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    stream->captured = new CUgraph_st;
    stream->capturing_thread = std::this_thread::get_id();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return OnCard([&](Card&) {
    *graph = std::exchange(stream->captured, nullptr);
    if (*graph == nullptr) return cudaErrorInvalidValue;
    if ((*graph)->is_valid) return cudaSuccess;
    delete std::exchange(*graph, nullptr);
    return cudaErrorStreamCaptureInvalidated;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  return OnCard([&](Card&) {
    *executable = new CUgraphExec_st{graph->operations};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return OnCard([&](Card& card) {
    for (const Operation& operation : executable->operations) {
      const cudaError_t error = card.Queue(stream, operation);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
